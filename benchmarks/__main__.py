"""python -m benchmarks: all of them."""

from benchmarks.step import main

main()
