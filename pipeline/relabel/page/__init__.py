"""The report as one HTML page: tables, charts of judged pairs and of relevance, and a search over captions.

The page holds all data, its styles and plotly's JavaScript, and asks no server for anything. `captions` chooses the
captions of the page and finds their neighbours, `charts` makes the data of the charts, `content` puts everything
together from opened labels, and `render` writes the HTML around the files of `assets/`.
"""
