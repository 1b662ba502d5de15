"""The binpack scorer: which node of one cluster should take the next replica.

Pure: arrays in, scores and placements out; configuration text is read elsewhere.
"""
