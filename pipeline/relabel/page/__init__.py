"""The report as one HTML page: tables, charts of judged pairs and of relevance, and a search over captions.

The page contains all data, styles and plotly's JavaScript, and does not need a server. `captions` selects the captions
of the page and finds their neighbours, `charts` creates plotly figures and the data of judged pairs, and `render`
assembles the HTML with the files of `assets/`.
"""
