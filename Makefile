# Two commands: `make reproduce` (every table and figure) and `make test`. Each target prepares the
# environment first, which costs nothing when nothing changed; tools/make_env.py says which one.

ifeq ($(origin PYTHON),undefined)
PYTHON := python3
else
GIVEN := --python $(PYTHON)
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env reproduce test nbval lint bench lab mini-model test-slurm clean

# A misspelt variable would silently change nothing.
KNOWN := PROFILE SEEDS DEVICE JOBS TASKS METHODS PYTHON
GIVEN_HERE := $(foreach v,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $v))),$v))
ifneq ($(filter-out $(KNOWN) MAKE%,$(GIVEN_HERE)),)
$(error there is no variable $(filter-out $(KNOWN) MAKE%,$(GIVEN_HERE)); there are $(KNOWN))
endif

# The environment's Python, found when a recipe first needs it.
PY = $(eval PY := $$(shell $(PYTHON) tools/make_env.py --where $(GIVEN)))$(PY)

SOURCES := $(wildcard discogp_lib tools benchmarks)
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
PYTEST = $(PY) -m pytest -n $(or $(JOBS),2) --dist loadfile
NBVAL := --nbval --nbval-current-env --nbval-sanitize-with tests/nbval_sanitize.cfg

help: ## show this list (the default)
	@echo "Targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-11s %s\n", $$1, $$2}'
	@echo "Variables:"
	@sed -n 's/^## \([A-Z]*\) */\1|/p' Makefile | awk -F'|' '{printf "  %-16s %s\n", $$1, $$2}'

## PROFILE smoke, mini, smollm2 or paper; by default paper with a CUDA device and mini without
## SEEDS   seeds to run, such as "0 1 2"
## DEVICE  cpu, cuda or cuda:1
## JOBS    worker processes, for reproduce and for the tests (2)
## TASKS   only these tasks, such as "ioi pararel/P36"
## METHODS only these methods, such as "acdc eap", and DiscoGP to compare them with
## PYTHON  Python that .venv is made with, or one inside an environment to use instead of .venv

env: ## prepare the environment: the active virtual or conda one (not conda's base), else .venv
	@$(PYTHON) tools/make_env.py $(GIVEN)

reproduce: env ## run the experiments and write every table and figure of PROFILE
	@$(PY) -m discogp_lib reproduce \
		$(if $(PROFILE),--profile $(PROFILE)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(DEVICE),--device $(DEVICE)) $(if $(JOBS),--jobs $(JOBS)) \
		$(if $(TASKS),--tasks $(TASKS)) $(if $(METHODS),--methods $(METHODS))

# Notebooks run as the tests do: one thread each, no network.
test nbval: export OMP_NUM_THREADS := 1
test nbval: export HF_HUB_OFFLINE := 1

# Several notebooks read the smoke profile's runs at the same time, so they are computed first.
SMOKE = $(PY) -m discogp_lib sweep --profile smoke --jobs $(or $(JOBS),2)

test: lint ## check everything: lint, types, tests and the notebooks' outputs
	@$(SMOKE)
	@$(PYTEST) $(if $(NOTEBOOKS),$(NBVAL) $(NOTEBOOKS)) tests

nbval: env ## run the notebooks and compare with the outputs they were committed with
	@$(SMOKE)
	@$(if $(NOTEBOOKS),$(PYTEST) $(NBVAL) $(NOTEBOOKS),echo "There are no notebooks yet.")

lint: env ## check style, formatting and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy $(SOURCES)

bench: env ## measure speed and memory
	@$(PY) -m benchmarks

lab: env ## open the notebooks in JupyterLab
	@$(PY) -m jupyterlab notebooks

mini-model: env ## train the embedded language model again from scratch
	@$(PY) -m discogp_lib.train_mini

SLURM := slurmctld slurmd munged sbatch

test-slurm: env ## check the SLURM executor against a real SLURM on this machine
	@command -v $(SLURM) >/dev/null || \
		{ apt-get update && apt-get install -y --no-install-recommends slurm-wlm munge; }
	@$(PY) -m pytest -m slurm tests/test_slurm.py

clean: ## remove caches and build leftovers, not .venv, results or figures
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	@find . -name .venv -prune -o -name .git -prune -o \
		\( -name __pycache__ -o -name .ipynb_checkpoints -o -name '*.part' \) -exec rm -rf {} +
