.PHONY: client-typescript
client-typescript: ## the TypeScript client: types, lint, tests, package, README on a real etcd (installs Node where it is missing)
	clients/typescript/check
