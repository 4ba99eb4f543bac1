package workertest

import (
	"testing"

	"dynamiccl/internal/testbuild"
)

// Every C source that is built here.
func TestSources(t *testing.T) {
	testbuild.Sources(t, "../worker/*", "../fakegpu/*.*", "../fakegpu/Makefile", "../../kernels/*.cuh", "../../kernels/device/*", "../../kernels/gin/*", "../../kernels/test/*", "../harness/*", "../plugin/*.[ch]", "../plugin/Makefile", "../preload/*.[ch]", "../preload/Makefile", "../*.h")
}
