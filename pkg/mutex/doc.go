// Package mutex takes, keeps and gives back distributed locks that people can see.
package mutex
