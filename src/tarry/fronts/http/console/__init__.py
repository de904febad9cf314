"""The console: pages that a browser shows of a broker.

``app`` has the routes · ``guard`` stands before them: headers, who may come in, what a form must bring · ``cookies``
hold the names of ``sessions``, which are the visitors · ``figures`` keeps one snapshot for all of them · ``page`` makes
an answer of a template · ``shown`` writes numbers, times and bodies for people · ``charts`` are the data of the charts
· the others are the pages.

Everything that a page shows is escaped by the templates, and the content security policy allows no script but the
files in ``static``; their authors and licences are in ``static/LICENSES.txt``.
"""
