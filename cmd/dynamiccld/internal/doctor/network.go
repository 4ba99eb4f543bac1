package doctor

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/kernelsfile"
)

const (
	carrierName       = "dynamiccl-carrier"
	carrierFile       = "libnccl-net-" + carrierName + ".so"
	carrierKernelFile = carrierName + ".fatbin"
)

// ginFor gives the versions of NCCL that kernels on GIN are for, and the file of nccl's, or where that is none of them, or not known,
// of the first that is there in dir.
func ginFor(dir, nccl string) (versions, file string, known bool) {
	var all, files []string
	for _, g := range kernelsfile.OverGIN {
		all, files = append(all, g.NCCL), append(files, filepath.Join(dir, g.Name))
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
	wanted := h.Getenv("DYNAMICCL_GIN")
	versions, shipped, fits := ginFor(dir, nccl)
	file, there := kernelsfile.Find(h.Getenv, kernelsfile.GINVariable, shipped)
	switch {
	case config.SwitchedOn(h.Getenv, "DYNAMICCL_NO_KERNELS"):
		r.ok(check, "DYNAMICCL_NO_KERNELS is set: no kernels over GIN either")
	case wanted == "0":
		r.ok(check, "DYNAMICCL_GIN=0: no kernels over GIN")
	case file.Refused != "":
		r.fail(check, file.Refused+": ranks refuse it, and there are no kernels over GIN", file.Remedy)
	case !there && wanted == "1":
		r.warn(check, fmt.Sprintf("DYNAMICCL_GIN=1 asks for kernels over GIN, and %s is not there", file.Path), "build it with `make kernels`")
	case !there:
		r.ok(check, "kernels over NCCL's GIN are not built: `make kernels` builds them")
	case !fits && wanted == "1":
		r.warn(check, fmt.Sprintf("DYNAMICCL_GIN=1 asks for kernels over GIN, which are for NCCL %s: not with %s", versions, nccl), "run the program with NCCL "+versions+", or unset DYNAMICCL_GIN")
	case !fits:
		r.ok(check, fmt.Sprintf("kernels over GIN are for NCCL %s, so none with %s: %s", versions, nccl, file.Path))
	default:
		r.ok(check, fmt.Sprintf("with NCCL %s calls of several nodes on one host may run over GIN: %s", cmp.Or(nccl, versions), file.Path))
	}
}

// checkCarrier looks for the files of the network plugin for development hosts (kernels/carrier) where something names it.
func checkCarrier(r *Report, h Host, env map[string]setting) {
	const check = "carrier"
	named := func(name string) string { return cmp.Or(env[name].value, h.Getenv(name)) }
	by := slices.DeleteFunc(slices.Clone(carrierNames), func(name string) bool { return !strings.Contains(named(name), carrierName) })
	if len(by) == 0 {
		return // it is not for those who do not ask for it
	}
	const remedy = "build it with `make carrier`, and put its folder into LD_LIBRARY_PATH"
	path := ""
	switch value := named(by[0]); {
	case by[0] == "DYNAMICCL_GIN_NET":
		r.warn(check, fmt.Sprintf("%s names the carrier and NCCL_NET_PLUGIN does not: NCCL does not load it", by[0]), "export NCCL_NET_PLUGIN="+carrierName)
		return
	case strings.Contains(value, "/"):
		path = regular(value)
	default:
		path = find(h, carrierFile)
	}
	if path == "" {
		r.fail(check, fmt.Sprintf("%s names the carrier, and %s is not there", by[0], carrierFile), remedy)
		return
	}
	unset := "unset " + strings.Join(by, " ")
	queues, _ := strconv.Atoi(h.Getenv(queuesVariable))
	lib, err := inspect(path)
	switch {
	case err != nil:
		r.fail(check, fmt.Sprintf("%s cannot be read as a library: %v", path, err), remedy)
	case !lib.symbols["ncclGinPlugin_v11"] || !lib.symbols["ncclGinPlugin_v14"] || !lib.symbols["ncclRmaPlugin_v14"]:
		r.fail(check, path+" is another library, or an old build", remedy)
	case h.Getenv("DYNAMICCL_CARRIER") != "1":
		r.fail(check, path+" refuses to start: it is for development and tests", "export DYNAMICCL_CARRIER=1 if that is meant, else "+unset)
	case queues < leastQueues:
		r.fail(check, fmt.Sprintf("%s refuses to start: its kernels may come to stand behind the program's, which wait for them, in less than %d of CUDA's queues", path, leastQueues),
			"export "+queuesVariable+"=32")
	default:
		r.warn(check, fmt.Sprintf("%s stands for a NIC, for development and tests; %s", path, carrierTypes(path, by)), unset+" where real work is done")
	}
}

// queuesVariable says how many queues to the GPU CUDA gives a program, and leastQueues what the carrier wants (kernels/carrier/plugin.c).
const (
	queuesVariable = "CUDA_DEVICE_MAX_CONNECTIONS"
	leastQueues    = 16
)

// carrierNames are the variables that name the carrier: NCCL 2.28.9's, those of 2.30.5 and later (decision 29), and ours.
var carrierNames = []string{"NCCL_NET_PLUGIN", "NCCL_GIN_PLUGIN", "NCCL_RMA_PLUGIN", "DYNAMICCL_GIN_NET"}

// carrierTypes says which types of GIN the carrier gives where these variables name it. GDAKI wants the kernel beside it.
func carrierTypes(path string, by []string) string {
	hasCard := regular(filepath.Join(filepath.Dir(path), carrierKernelFile)) != ""
	gdaki, proxy := slices.Contains(by, "NCCL_GIN_PLUGIN"), slices.Contains(by, "NCCL_RMA_PLUGIN")
	switch {
	case slices.Contains(by, "NCCL_NET_PLUGIN") && hasCard:
		return "GIN of types Proxy and GDAKI: " + carrierKernelFile + " is beside it"
	case slices.Contains(by, "NCCL_NET_PLUGIN"):
		return "GIN of type Proxy alone: " + carrierKernelFile + " is not beside it"
	case gdaki && proxy && hasCard:
		return "GIN of types Proxy and GDAKI, with NCCL 2.30.5 and later"
	case gdaki && hasCard:
		return "GIN of type GDAKI, with NCCL 2.30.5 and later"
	case gdaki && proxy:
		return "GIN of type Proxy alone, with NCCL 2.30.5 and later: " + carrierKernelFile + ", which GDAKI wants, is not beside it"
	case gdaki:
		return "no GIN of it: NCCL_GIN_PLUGIN is type GDAKI's, and " + carrierKernelFile + " is not beside it"
	}
	return "GIN of type Proxy, with NCCL 2.30.5 and later"
}
