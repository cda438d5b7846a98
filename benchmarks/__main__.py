"""python -m benchmarks: all of them."""

from benchmarks import methods, step

step.main()
methods.main()
