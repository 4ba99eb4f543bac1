package kernelstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What the scripts of kernels/bench call, as programs that print.
var standIns = map[string]string{
	"nvidia-smi": `case "$*" in
		-L) seq "$GPUS" ;;
		*driver_version*) echo 580.1 ;;
		*utilization*) yes "${BUSY:-0}" | head -n "$GPUS" ;;
		*) yes "NVIDIA H200" | head -n "$GPUS" ;;
		esac`,
	"python3": `case "$*" in
		*nvidia.nccl*) echo "$HOME" ;;
		*ncclGetVersion*) echo "${NCCL_IS:-22809}" ;;
		*"import torch"*) [ -z "$NO_TORCH" ] ;;
		*) echo '{"figure":"symm_mem time","said":"'"$*"'"}' ;;
		esac`,
	"sleep": `[ "$1" = 1 ] || exec /bin/sleep "$1"`, // a look at GPUs that stay busy is not worth its seconds here
	"nvidia-cuda-mps-control": `[ -d "$CUDA_MPS_PIPE_DIRECTORY" ] && [ "$1$CUDA_VISIBLE_DEVICES" != -d0 ] || exit 1
		echo '{"figure":"mps","said":"mps '"${1:-$(cat)}"'"}' >>"$HOME/out.jsonl"`,
	"lsa": `echo '{"figure":"lsa","said":"'"${CUDA_MPS_PIPE_DIRECTORY:+shared by $CUDA_DEVICE_MAX_CONNECTIONS }$*"'"}'
		case "$* $LSA_STATUS" in *no-symmetric*) ;; *) exit "${LSA_STATUS:-0}" ;; esac`,
	"gin": `case "$*" in *--small*) echo '{"figure":"gin check","what":"allreduce","elements":11,"wrong":0}' ;; esac
		[ -z "$NO_KERNELS" ] || echo '{"figure":"gin rails","left_out":"a file"}'
		[ -z "$TOOL" ] || echo '{"figure":"gin followed","rank":0}'
		[ -z "$TOOL" ] || [ "$TOOL" = "$ONE_RANK" ] || for ((r = 1; r < $2; r++)); do echo '{"figure":"gin followed","rank":'$r'}'; done
		echo '{"figure":"gin end","said":"'"$NCCL_NET_PLUGIN${NCCL_RMA_PLUGIN:+RMA }${NCCL_GIN_PLUGIN:+GIN }$NCCL_GIN_TYPE $*"'","wrong":0}'
		[ "$2" != "$LATE" ] || sleep 60
		[ "$2" != "$NO_GIN" ] || exit 3`,
	"sanitize": `[ "$1" = 1 ] || [ -n "$HANGS" ] || echo '{"figure":"lsa sanitize","ranks":2,"calls":7,"elements":9,"wrong":0}'
		[ -z "$HANGS" ] || sleep 60`,
	"compute-sanitizer": `[ "$*" != --version ] || { echo "Version 2025.3.1.0 (build 1)"; exit; }
		while [ "${1#--}" != "$1" ]; do
			case $1 in --tool) tool=$2 ;; --log-file) log=$2 ;; esac
			shift 2
		done
		TOOL=$tool "$@" || exit
		case $tool in
		racecheck) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" ;;
		synccheck) echo "========= ERROR SUMMARY: 2 errors" ;;
		*) echo "========= ERROR SUMMARY: 0 errors" ;;
		esac >"${log/\%p/1}"
		[ "$tool" != synccheck ] || exit 9`,
}

// script runs one in a copy of the tree and gives the lines that it wrote, and its exit status.
func script(t *testing.T, name string, variables ...string) ([]map[string]any, int) {
	t.Helper()
	root := t.TempDir()
	bin := filepath.Join(root, "bin")
	text, err := os.ReadFile(filepath.Join("..", "bench", name))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"kernels/bench/" + name: string(text), "lib/libnccl.so.2": ""}
	for _, built := range []string{"dynamiccl-kernels.fatbin", "dynamiccl-gin.fatbin", "libnccl-net-dynamiccl-carrier.so"} {
		files["lib/"+built] = ""
	}
	for _, sourced := range []string{"mps.sh", "carrier.sh", "gin_program.sh", "usage.sh"} {
		text, err := os.ReadFile(filepath.Join("..", "bench", sourced))
		if err != nil {
			t.Fatal(err)
		}
		files["kernels/bench/"+sourced] = string(text)
	}
	for program, lines := range standIns {
		files["bin/"+program] = "#!/usr/bin/env bash\n" + lines + "\n"
	}
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(root, "out.jsonl")
	cmd := exec.Command(filepath.Join(root, "kernels", "bench", name), out)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+root, "GPUS=4", "COMMIT=abc", "LSA="+bin+"/lsa",
		"GIN="+bin+"/gin", "SANITIZE="+bin+"/sanitize", "COMPUTE_SANITIZER="+bin+"/compute-sanitizer")
	cmd.Env = append(cmd.Env, variables...)
	said, _ := cmd.CombinedOutput()
	t.Logf("%s", said)
	written, err := os.ReadFile(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var lines []map[string]any
	for line := range strings.Lines(string(written)) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, fields)
	}
	return lines, cmd.ProcessState.ExitCode()
}

// What was run, in short: who, and behind what option it was told how many ranks.
func steps(lines []map[string]any) string {
	var all []string
	for _, line := range lines[min(len(lines), 1):] {
		said := strings.Fields(line["said"].(string))
		for i, word := range said {
			switch word {
			case "mps", "by":
				all = append(all, word+" "+said[i+1])
			case "--ranks", "--nproc-per-node":
				all = append(all, strings.Fields(line["figure"].(string))[0]+said[i+1])
			case "--no-symmetric":
				all = append(all, "without windows")
			}
		}
	}
	return strings.Join(all, ", ")
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name, variables, want string
		status                int
	}{
		{"four GPUs", "GPUS=4", "lsa4, symm_mem4, lsa2, symm_mem2", 0},
		{"two GPUs", "GPUS=2", "lsa2, symm_mem2", 0},
		{"tables named", "RANKS=3", "lsa3, symm_mem3", 0},
		{"no PyTorch", "NO_TORCH=1", "lsa4, lsa2", 0},
		{"wrong elements keep nothing from being run", "LSA_STATUS=1", "lsa4, symm_mem4, lsa2, symm_mem2", 1},
		{"more ranks than GPUs", "RANKS=8 4", "", 2},
		{"which share them, ours alone, and others after them without", "MPS=1,RANKS=4 8 32 2,CUDA_VISIBLE_DEVICES=0", "lsa4, symm_mem4, mps -d, by 16, lsa8, mps quit, mps -d, by 8, lsa32, mps quit, lsa2, symm_mem2", 0},
		{"one GPU that is shared", "MPS=1,GPUS=1", "mps -d, by 16, lsa4, mps quit, mps -d, by 8, lsa8, mps quit", 0},
		{"and an element is wrong", "MPS=1,GPUS=1,LSA_STATUS=1,RANKS=2", "mps -d, by 16, lsa2, mps quit", 1},
		{"under a service that runs", "MPS=1,GPUS=1,CUDA_MPS_PIPE_DIRECTORY=/,RANKS=2", "by 16, lsa2", 0},
		{"NCCL cannot go on with windows", "LSA_STATUS=3", "lsa4, lsa4, without windows, symm_mem4, lsa2, lsa2, without windows, symm_mem2", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines, status := script(t, "run.sh", strings.Split(c.variables, ",")...)
			if c.status != 2 && (lines[0]["commit"] != "abc" || lines[0]["driver"] != "580.1") {
				t.Errorf("machine: %v", lines)
			}
			if got := steps(lines); got != c.want || status != c.status {
				t.Errorf("ran %s, exit %d; want %s, %d", got, status, c.want, c.status)
			}
		})
	}
}

func TestGin(t *testing.T) {
	for _, c := range []struct {
		name      string
		variables []string
		want      string // what the lines behind the first say
		status    int
	}{
		{"four GPUs", nil, " --ranks 2 --nodes 1, --ranks 4 --nodes 1, --ranks 2 --nodes 2, --ranks 4 --nodes 2", 0},
		{"two GPUs", []string{"GPUS=2"}, " --ranks 2 --nodes 1, --ranks 2 --nodes 2, --ranks 4 --nodes 2 --check", 0},
		{"tables named", []string{"TABLES=3 6/3"}, " --ranks 3 --nodes 1, --ranks 6 --nodes 3 --check", 0},
		{"which run beside each other", []string{"TABLES=2 6/3 8/4", "MPS=1"}, " --ranks 2 --nodes 1,mps -d, --ranks 6 --nodes 3 --check --time --contexts 2, --ranks 8 --nodes 4 --check --time --contexts 2,mps quit", 0},
		{"the plugin for development", []string{"TABLES=2", "DYNAMICCL_CARRIER=1"}, "dynamiccl-carrier --ranks 2 --nodes 1", 0},
		{"another plugin", []string{"TABLES=2", "DYNAMICCL_CARRIER=1", "NCCL_NET_PLUGIN=other"}, "other --ranks 2 --nodes 1", 0},
		{"the newer NCCL's", []string{"TABLES=2", "DYNAMICCL_CARRIER=1", "NCCL_IS=23203"}, "RMA 2 --ranks 2 --nodes 1", 0},
		{"of type GDAKI", []string{"TABLES=2", "DYNAMICCL_CARRIER=1", "NCCL_IS=23203", "GIN_TYPE=3"}, "GIN 3 --ranks 2 --nodes 1", 0},
		{"and named as NCCL has it", []string{"TABLES=2", "DYNAMICCL_CARRIER=1", "NCCL_IS=23203", "NCCL_GIN_TYPE=3"}, "GIN 3 --ranks 2 --nodes 1", 0},
		{"of both types", []string{"TABLES=2", "DYNAMICCL_CARRIER=1", "NCCL_IS=23203", "GIN_TYPE=both", "NCCL_GIN_TYPE=2"}, "RMA GIN  --ranks 2 --nodes 1", 0},
		{"a table without GIN keeps no other from being made", []string{"TABLES=2 4", "NO_GIN=2"}, " --ranks 2 --nodes 1,status 3, --ranks 4 --nodes 1", 1},
		{"traffic, and a rank that is killed", []string{"TABLES=2", "MESSAGES=30"}, " --ranks 2 --nodes 1, --ranks 4 --nodes 1 --traffic 30, --ranks 4 --nodes 1 --traffic 3 --largest 20 --stops 200, --ranks 4 --nodes 1 --kill,left 0,0,0,0", 0},
		{"traffic of ranks that share GPUs", []string{"TABLES=2", "MESSAGES=30", "RANKS=6"}, " --ranks 2 --nodes 1, --ranks 6 --nodes 6 --traffic 30, --ranks 6 --nodes 6 --traffic 3 --largest 20 --stops 200, --ranks 6 --nodes 6 --kill,left 0,0,0,0", 0},
		{"with delays where the carrier can have them", []string{"TABLES=2", "MESSAGES=30", "DYNAMICCL_CARRIER=1"},
			"dynamiccl-carrier --ranks 2 --nodes 1,dynamiccl-carrier --ranks 4 --nodes 1 --traffic 30,dynamiccl-carrier --ranks 4 --nodes 1 --traffic 3 --largest 20 --stops 200,dynamiccl-carrier --ranks 4 --nodes 4 --traffic 30," +
				"dynamiccl-carrier --ranks 4 --nodes 1 --traffic 10,dynamiccl-carrier --ranks 4 --nodes 1 --kill,left 0,0,0,0", 0},
		{"no table, and four ranks on two GPUs beside each other, but for the one that is killed", []string{"TABLES= ", "MESSAGES=30", "DYNAMICCL_CARRIER=1", "MPS=1", "GPUS=2", "RANKS=4"},
			"mps -d,dynamiccl-carrier --ranks 4 --nodes 4 --contexts 2 --traffic 30,dynamiccl-carrier --ranks 4 --nodes 4 --contexts 2 --traffic 3 --largest 20 --stops 200," +
				"dynamiccl-carrier --ranks 4 --nodes 4 --contexts 2 --traffic 30,dynamiccl-carrier --ranks 4 --nodes 4 --contexts 2 --traffic 10,mps quit,dynamiccl-carrier --ranks 4 --nodes 4 --contexts 2 --kill,left 0,0", 0},
		{"a kernel is left", []string{"TABLES= ", "MESSAGES=30", "GPUS=2", "BUSY=100"}, " --ranks 2 --nodes 1 --traffic 30, --ranks 2 --nodes 1 --traffic 3 --largest 20 --stops 200, --ranks 2 --nodes 1 --kill,left 100,100", 1},
		{"nor does one that hangs", []string{"TABLES=2 4", "LATE=2", "LIMIT=1"}, " --ranks 2 --nodes 1,status 124, --ranks 4 --nodes 1", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines, status := script(t, "gin.sh", append([]string{"MESSAGES=0"}, c.variables...)...)
			if lines[0]["commit"] != "abc" || lines[0]["driver"] != "580.1" || (lines[0]["nccl"] != 22809.0 && lines[0]["nccl"] != 23203.0) {
				t.Errorf("machine: %v", lines[0])
			}
			var got []string
			for _, line := range lines[1:] {
				switch line["figure"] {
				case "gin table":
					got = append(got, fmt.Sprint("status ", line["status"]))
				case "gin kill left":
					got = append(got, fmt.Sprint("left ", line["utilization"]))
				default:
					got = append(got, line["said"].(string))
				}
			}
			if strings.Join(got, ",") != c.want || status != c.status {
				t.Errorf("ran %q, exit %d; want %q, %d", strings.Join(got, ","), status, c.want, c.status)
			}
		})
	}
}

// Over the carrier, and with an end to it.
func TestGinWaits(t *testing.T) {
	lines, status := script(t, "gin_waits.sh")
	if len(lines) != 2 || status != 0 || lines[0]["commit"] != "abc" || lines[1]["said"] != "dynamiccl-carrier --ranks 2 --contexts 1 --waits" {
		t.Errorf("%v, exit %d; want a machine, what was run, 0", lines, status)
	}
	if lines, status := script(t, "gin_waits.sh", "NO_GIN=2"); len(lines) != 2 || status != 3 {
		t.Errorf("without GIN: %v, exit %d; want two lines, 3", lines, status)
	}
}

func TestSanitize(t *testing.T) {
	lines, status := script(t, "sanitize.sh")
	for i, want := range []struct {
		tool   string
		errors float64
	}{{"none", 0}, {"memcheck", 0}, {"racecheck", 0}, {"synccheck", 4}} { // of two ranks
		got := lines[i]
		if got["tool"] != want.tool || got["errors"] != want.errors || got["ended"] != true || got["calls"] != 7.0 || got["version"] != "2025.3.1.0" {
			t.Errorf("%v; want %v", got, want)
		}
	}
	if len(lines) != 4 || status != 1 {
		t.Errorf("%d lines, exit %d; want 4, 1", len(lines), status)
	}
}

// Two ranks on the only GPU.
func TestSanitizeOnOneGPU(t *testing.T) {
	lines, status := script(t, "sanitize.sh", "GPUS=1", "TOOLS=memcheck")
	if len(lines) != 2 || status != 0 {
		t.Fatalf("%v, exit %d; want two lines, 0", lines, status)
	}
	for _, line := range lines {
		if line["ranks"] != 2.0 || line["ended"] != true || line["gpus"] != "1 NVIDIA H200" {
			t.Errorf("%v", line)
		}
	}
}

func TestSanitizeThatHangs(t *testing.T) {
	lines, status := script(t, "sanitize.sh", "HANGS=1", "LIMIT=1")
	if len(lines) != 1 || lines[0]["ended"] != false || status != 1 {
		t.Errorf("%v, exit %d; want one line that did not end, 1", lines, status)
	}
}

// A tool that follows one of the two ranks alone has not ended.
func TestSanitizeGIN(t *testing.T) {
	lines, status := script(t, "sanitize_gin.sh", "ONE_RANK=initcheck", "GIN_TOOLS=memcheck initcheck synccheck")
	for i, want := range []struct {
		tool   string
		ended  bool
		errors any
	}{{"none", true, 0.0}, {"memcheck", true, 0.0}, {"initcheck", false, nil}, {"synccheck", true, 2.0}} {
		if i >= len(lines) {
			break
		}
		got := lines[i]
		if got["tool"] != want.tool || got["errors"] != want.errors || got["ended"] != want.ended || got["elements"] != 11.0 || got["wrong"] != 0.0 {
			t.Errorf("%v; want %v", got, want)
		}
	}
	if len(lines) != 4 || status != 1 {
		t.Errorf("%d lines, exit %d; want 4, 1", len(lines), status)
	}
	if lines, status := script(t, "sanitize_gin.sh", "GIN_TOOLS=memcheck"); len(lines) != 2 || status != 0 || lines[1]["ranks"] != 2.0 || lines[1]["nodes"] != 1.0 {
		t.Errorf("%v, exit %d; want two lines of two ranks, 0", lines, status)
	}
	if lines, status := script(t, "sanitize_gin.sh", "GIN_TOOLS=memcheck", "RANKS=4", "NODES=2"); len(lines) != 2 || status != 0 || lines[1]["ranks"] != 4.0 || lines[1]["nodes"] != 2.0 || lines[1]["followed"] != 4.0 {
		t.Errorf("%v, exit %d; want two lines of four ranks, 0", lines, status)
	}
	if _, status := script(t, "sanitize_gin.sh", "GIN_TOOLS=memcheck", "NO_KERNELS=1"); status != 1 {
		t.Errorf("kernels were left out: exit %d; want 1", status)
	}
}

// Without GIN no tool is tried; a program that hangs is ended.
func TestSanitizeWithoutGIN(t *testing.T) {
	for variable, want := range map[string]float64{"NO_GIN=2": 3, "LATE=2": 124} {
		lines, status := script(t, "sanitize_gin.sh", variable, "GIN_LIMIT=1")
		if len(lines) != 1 || lines[0]["ended"] != false || lines[0]["status"] != want || status != 1 {
			t.Errorf("%s: %v, exit %d; want one line that did not end, 1", variable, lines, status)
		}
	}
	if lines, status := script(t, "sanitize_gin.sh", "GPUS=1"); len(lines) != 0 || status != 2 {
		t.Errorf("on one GPU: %v, exit %d; want nothing, 2", lines, status)
	}
}
