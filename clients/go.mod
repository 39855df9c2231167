// No Go here: this file keeps ./... out of node_modules.
module github.com/clustermutex/unlocker/clients

go 1.26.0
