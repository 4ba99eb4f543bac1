// Package plugintest runs the tests of the C plugin (nccltuner/plugin) under go test. They live here because the go tool
// refuses Go files beside C files in a package that does not use cgo.
package plugintest
