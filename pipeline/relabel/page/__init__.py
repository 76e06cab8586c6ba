"""The report as one HTML page: tables, charts of judged pairs and of relevance, and a search over captions.

The page holds all data, its styles and plotly's JavaScript, and asks no server for anything. `captions` chooses the
captions of the page and finds their neighbours, `charts` makes figures of plotly and the data of judged pairs, and
`render` puts everything together and writes the HTML around the files of `assets/`.
"""
