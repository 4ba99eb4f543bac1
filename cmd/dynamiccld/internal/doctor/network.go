package doctor

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dynamiccl/cmd/dynamiccld/internal/config"
)

const (
	carrierName       = "dynamiccl-carrier"
	carrierFile       = "libnccl-net-" + carrierName + ".so"
	carrierKernelFile = carrierName + ".fatbin"
)

// ginFiles are the kernels on GIN, by the version of NCCL that they are for, the oldest first (DYN_GIN_NCCL_VERSIONS, kernels/host/gin_module.c).
var ginFiles = []struct{ version, file string }{{"2.28.9", "dynamiccl-gin.fatbin"}, {"2.32.3", "dynamiccl-gin-2.32.3.fatbin"}}

// ginFor gives the versions of NCCL that kernels on GIN are for, and the file of nccl's, or where that is none of them, or not known,
// of the first that is there in dir.
func ginFor(dir, nccl string) (versions, file string, known bool) {
	var all, files []string
	for _, g := range ginFiles {
		all, files = append(all, g.version), append(files, filepath.Join(dir, g.file))
	}
	at := slices.Index(all, nccl)
	if known = at >= 0; !known {
		at = max(0, slices.IndexFunc(files, func(file string) bool { return regular(file) != "" }))
	}
	return strings.Join(all, " or "), files[at], known || nccl == ""
}

// checkNCCL says which NCCL a program of this shell finds by the loader; one that brings its own, as PyTorch's wheels do, finds that.
// It gives the version; "": not known.
func checkNCCL(r *Report, h Host) string {
	path := find(h, "libnccl.so.2")
	if path == "" {
		r.ok("nccl", "no libnccl.so.2 where the loader looks: programs bring their own, or are linked with NCCL")
		return ""
	}
	lib, err := inspect(path)
	switch {
	case err != nil:
		r.warn("nccl", fmt.Sprintf("%s cannot be read as a library: %v", path, err), "install NCCL again, or take its folder out of LD_LIBRARY_PATH")
	case lib.nccl == "":
		r.ok("nccl", path+", which does not say its version")
	default:
		r.ok("nccl", "NCCL "+lib.nccl+": "+path)
	}
	return lib.nccl
}

// checkGIN says whether the kernels on NCCL's GIN are there (kernels/host/gin_module.c), in dir beside the preload library, and for
// which NCCL. As with the others nothing is wrong where they are not.
func checkGIN(r *Report, h Host, dir, nccl string) {
	const check = "gin"
	named, wanted := h.Getenv("DYNAMICCL_GIN_KERNELS"), h.Getenv("DYNAMICCL_GIN")
	versions, shipped, fits := ginFor(dir, nccl)
	file := cmp.Or(named, shipped)
	there := regular(file) != ""
	switch {
	case config.SwitchedOn(h.Getenv, "DYNAMICCL_NO_KERNELS"):
		r.ok(check, "DYNAMICCL_NO_KERNELS is set: no kernels over GIN either")
	case wanted == "0":
		r.ok(check, "DYNAMICCL_GIN=0: no kernels over GIN")
	case !there && named != "":
		r.fail(check, fmt.Sprintf("DYNAMICCL_GIN_KERNELS names %s, which is no file: no kernels over GIN", file), "build it with `make kernels`, or unset DYNAMICCL_GIN_KERNELS")
	case !there && wanted == "1":
		r.warn(check, fmt.Sprintf("DYNAMICCL_GIN=1 asks for kernels over GIN, and %s is not there", file), "build it with `make kernels`")
	case !there:
		r.ok(check, "kernels over NCCL's GIN are not built: `make kernels` builds them")
	case !fits && wanted == "1":
		r.warn(check, fmt.Sprintf("DYNAMICCL_GIN=1 asks for kernels over GIN, which are for NCCL %s: not with %s", versions, nccl), "run the program with NCCL "+versions+", or unset DYNAMICCL_GIN")
	case !fits:
		r.ok(check, fmt.Sprintf("kernels over GIN are for NCCL %s, so none with %s: %s", versions, nccl, file))
	default:
		r.ok(check, fmt.Sprintf("with NCCL %s calls of several nodes on one host may run over GIN: %s", cmp.Or(nccl, versions), file))
	}
}

// checkCarrier looks for the files of the network plugin for development hosts (kernels/carrier) where something names it.
func checkCarrier(r *Report, h Host, env map[string]setting) {
	const check = "carrier"
	by := ""
	net, rma := env["NCCL_NET_PLUGIN"].value, env["NCCL_RMA_PLUGIN"].value
	for name, value := range map[string]string{"NCCL_NET_PLUGIN": net, "NCCL_RMA_PLUGIN": rma, "DYNAMICCL_GIN_NET": h.Getenv("DYNAMICCL_GIN_NET")} {
		if strings.Contains(value, carrierName) {
			by = max(by, name)
		}
	}
	if by == "" {
		return // it is not for those who do not ask for it
	}
	value, remedy := net, "build it with `make carrier`, and put its folder into LD_LIBRARY_PATH"
	alone := !strings.Contains(net, carrierName) && strings.Contains(rma, carrierName) // NCCL 2.30.5 and later (decision 29)
	if alone {
		value = rma
	}
	path := ""
	switch {
	case strings.Contains(value, "/"):
		path = regular(value)
	case strings.Contains(value, carrierName):
		path = find(h, carrierFile)
	default:
		r.warn(check, fmt.Sprintf("%s names the carrier and NCCL_NET_PLUGIN does not: NCCL does not load it", by), "export NCCL_NET_PLUGIN="+carrierName)
		return
	}
	if path == "" {
		r.fail(check, fmt.Sprintf("%s names the carrier, and %s is not there", by, carrierFile), remedy)
		return
	}
	lib, err := inspect(path)
	switch {
	case err != nil:
		r.fail(check, fmt.Sprintf("%s cannot be read as a library: %v", path, err), remedy)
	case !lib.symbols["ncclGinPlugin_v11"] || !lib.symbols["ncclRmaPlugin_v14"]:
		r.fail(check, path+" is another library, or an old build", remedy)
	case h.Getenv("DYNAMICCL_CARRIER") != "1":
		r.fail(check, path+" refuses to start: it is for development and tests", "export DYNAMICCL_CARRIER=1 if that is meant, else unset "+by)
	default:
		types := "GIN of type Proxy alone: " + carrierKernelFile + " is not beside it"
		if alone {
			types = "GIN of type Proxy, with NCCL 2.30.5 and later"
		} else if info, err := os.Stat(filepath.Join(filepath.Dir(path), carrierKernelFile)); err == nil && info.Mode().IsRegular() {
			types = "GIN of types Proxy and GDAKI: " + carrierKernelFile + " is beside it"
		}
		r.warn(check, fmt.Sprintf("%s stands for a NIC, for development and tests; %s", path, types), "unset "+by+" where real work is done")
	}
}
