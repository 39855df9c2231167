# To publish what was checked: pyproject-build clients/python, then twine upload clients/python/dist/*.

.PHONY: client-python
client-python: ## the Python client: types, lint, tests, package, examples (installs from Debian what is missing)
	clients/python/check
