"""Reports: one HTML file each, with its pictures in it as SVG, and nothing to fetch.

``plots`` draws · ``page`` puts a page together (Jinja2, which escapes all that it is given) · ``audit_page``,
``forecast_page`` are the reports. They know results as plain values, and neither Spark nor a broker.
"""
