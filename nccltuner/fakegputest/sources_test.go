package fakegputest

import (
	"testing"

	"dynamiccl/internal/testbuild"
)

// Every C and C++ source that is built here.
func TestSources(t *testing.T) {
	testbuild.Sources(t, "../fakegpu/*.*", "../fakegpu/Makefile", "../fakegpu/test/*.*", "../fakegpu/test/mix/*.[ch]", "../worker/*_api.h", "../harness/*", "../plugin/*.h", "../*.h",
		"../../kernels/host/*", "../preload/*.[ch]", "../preload/test/*", "../../kernels/*.cuh", "../../kernels/device/*", "../../kernels/gin/*", "../../kernels/test/*")
}
