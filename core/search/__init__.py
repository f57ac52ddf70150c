"""Search over the tools of a large catalogue by their words, without a dependency.

`index` has the index, `words` how text becomes words, `synonyms` the words that stand for each other, and `answers`
the meta-tools `search_tools`, `call_tool` and `call_read_only_tool` with what a search answers.

Words of any script are found as they are written, without case and accents. Only English has stems, synonyms and words
that say nothing. A query in another language than the definitions finds what both share, such as names of products.
"""
