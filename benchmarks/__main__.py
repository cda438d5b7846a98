"""python -m benchmarks: all of them."""

from benchmarks import methods, smollm2, step

step.main()
methods.main()
smollm2.main()
