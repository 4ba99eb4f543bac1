package workertest

import (
	"testing"

	"dynamiccl/internal/testbuild"
)

// build is where worker, stand-ins and plugin are.
var build string

func TestMain(m *testing.M) {
	testbuild.Main(m, &build, "../worker", "../fakegpu", "../plugin", "../preload")
}
