.PHONY: client-python
client-python: ## the Python client: types, lint, tests, package, README on a real etcd (installs from Debian what is missing)
	clients/python/check
