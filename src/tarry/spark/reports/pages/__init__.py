"""HTML pages that need no other file.

``plots`` draws SVG, ``render`` fills a Jinja2 template, escaping all values.
"""
