"""Does a model on many ranks compute what one process computes?"""
