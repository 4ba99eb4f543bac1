// Package programtest runs the tests of the scripts in nccltuner/gputest that need no GPU. It is a folder of its own because
// the go tool refuses Go files beside C files.
package programtest
