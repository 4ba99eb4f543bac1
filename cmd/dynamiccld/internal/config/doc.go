// Package config is what a person can set: defaults, file, environment and flags in one table of fields, so that a field
// has one name, one parser and one error text wherever it comes from.
package config
