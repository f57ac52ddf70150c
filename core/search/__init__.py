"""Search over the tools of a large catalogue by their words, without a dependency.

`index` has the index, `words` how text becomes words, `synonyms` the words that stand for each other, and `answers`
the meta-tools `search_tools`, `call_tool` and `call_read_only_tool` with what a search answers.
"""
