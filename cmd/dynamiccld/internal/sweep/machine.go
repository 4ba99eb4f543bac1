package sweep

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pterm/pterm"
	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/cmd/internal/wholefile"
)

// Description is the machine and how it was measured. The keys are an interface: add, never rename.
type Description struct {
	Identity Identity `json:"identity"`
	Date     string   `json:"date"` // of the first point
	Program  string   `json:"program"`
	Kernel   string   `json:"kernel"`
	CPU      string   `json:"cpu"`
	CPUs     int      `json:"cpus"`
	CUDA     string   `json:"cuda_driver"` // version of the CUDA driver interface
	Links    []string `json:"links"`       // nvidia-smi topo -m, by line
	NICs     []NIC    `json:"nics"`
	Sizes    []uint64 `json:"sizes"`
}

// Identity is what must be the same for rows to stand in one table.
type Identity struct {
	Machine     string   `json:"machine"`
	NCCL        string   `json:"nccl"`
	Ranks       int      `json:"nranks"`
	Nodes       int      `json:"nnodes"`
	Transport   string   `json:"transport"`
	Condition   string   `json:"condition"`
	Load        string   `json:"load"`
	LoadSize    int      `json:"load_size"`
	Calls       string   `json:"calls"`
	BudgetUs    int64    `json:"budget_us"`
	Exact       bool     `json:"exact_channels"`
	Samples     bool     `json:"samples"`
	Single      int      `json:"single_calls,omitempty"`
	GPUs        []GPU    `json:"gpus"`
	Driver      string   `json:"driver"`
	Environment []string `json:"environment"` // NCCL's variables, and ours, that change what is measured
}

// GPU is one GPU, by rank.
type GPU struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	PCI  string `json:"pci"`
}

// NIC is one network interface.
type NIC struct {
	Name      string `json:"name"`
	SpeedMbps int    `json:"speed_mbps"` // 0: not told
}

// Describe says where and how something is measured that these ranks run.
func Describe(ctx context.Context, o *Options, ready []workers.Ready) *Description {
	id := Identity{Machine: o.Machine, NCCL: control.FormatNCCLVersion(ready[0].NCCL), Ranks: o.Ranks, Nodes: o.Nodes, Transport: o.Transport,
		Condition: o.Condition, Load: o.Load, LoadSize: o.loadSize(), Calls: o.Calls, BudgetUs: o.Budget.Microseconds(), Exact: o.Exact,
		Samples: o.Samples != "", Single: o.Single, GPUs: []GPU{}, Environment: append([]string{}, o.Settings...), Driver: driverVersion()}
	for _, r := range ready {
		id.GPUs = append(id.GPUs, GPU{r.GPU, r.UUID, r.PCIBus})
	}
	if id.Machine == "" {
		id.Machine = fmt.Sprintf("%dx%s", id.distinct(), model(ready[0].GPU))
	}
	slices.Sort(id.Environment)
	cuda := ready[0].DriverVersion
	var uts unix.Utsname
	_ = unix.Uname(&uts) // never fails for memory of ours
	return &Description{Identity: id, Date: o.Now().UTC().Format(time.RFC3339), Program: o.Program, CPU: cpuModel(), CPUs: runtime.NumCPU(),
		Kernel: unix.ByteSliceToString(uts.Release[:]), CUDA: fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10),
		Links: topology(ctx), NICs: nics(os.DirFS("/")), Sizes: o.Sizes}
}

// distinct is how many GPUs there are: ranks of several pretended nodes may share them. Where not every rank's is told, each has one.
func (id *Identity) distinct() int {
	if len(id.GPUs) != id.Ranks {
		return id.Ranks
	}
	all := map[string]bool{}
	for _, gpu := range id.GPUs {
		all[gpu.UUID] = true
	}
	return len(all)
}

// Shared says that ranks share GPUs; "": each has its own.
func (id *Identity) Shared() string {
	gpus := id.distinct()
	if gpus >= id.Ranks {
		return ""
	}
	return fmt.Sprintf("%d ranks share %d GPUs: times are none of machines with a GPU a rank", id.Ranks, gpus)
}

// model is the GPU's name as machines are named by it: "NVIDIA H200" is H200.
func model(gpu string) string {
	words := strings.Fields(gpu)
	words = slices.DeleteFunc(words, func(w string) bool { return w == "NVIDIA" || w == "GeForce" || w == "Tesla" })
	if len(words) == 0 {
		return "GPU"
	}
	return strings.ReplaceAll(strings.Join(words, "-"), ",", "")
}

// tableName is the file's name as the recorded tables have theirs: h200x4-socket-4nodes-quiet.csv.
func tableName(id *Identity) string {
	gpu := "gpu"
	if len(id.GPUs) > 0 {
		gpu = strings.ToLower(model(id.GPUs[0].Name))
	}
	name := fmt.Sprintf("%sx%d-%s", gpu, id.Ranks, id.Transport)
	if gpus := id.distinct(); gpus < id.Ranks {
		name = fmt.Sprintf("%sx%d-%dranks-%s", gpu, gpus, id.Ranks, id.Transport)
	}
	if id.Nodes > 1 {
		name += fmt.Sprintf("-%dnodes", id.Nodes)
	}
	return strings.ReplaceAll(name+"-"+id.Condition, "/", "-") + ".csv"
}

func driverVersion() string {
	text, err := os.ReadFile("/sys/module/nvidia/version")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// topology is how the GPUs are joined, in nvidia-smi's words; none where it is not there.
func topology(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "topo", "-m").Output()
	if err != nil {
		return []string{}
	}
	return strings.Split(strings.TrimRight(pterm.RemoveColorFromString(string(out)), "\n"), "\n") // its header is underlined
}

func nics(root fs.FS) []NIC {
	all := []NIC{}
	entries, err := fs.ReadDir(root, "sys/class/net")
	if err != nil {
		return all
	}
	for _, e := range entries {
		n := NIC{Name: e.Name()}
		if text, err := fs.ReadFile(root, path.Join("sys/class/net", e.Name(), "speed")); err == nil {
			n.SpeedMbps, _ = strconv.Atoi(strings.TrimSpace(string(text))) // virtual ones say -1
			n.SpeedMbps = max(n.SpeedMbps, 0)
		}
		all = append(all, n)
	}
	return all
}

// errOther is returned when files hold another machine's or another sweep's rows.
var errOther = errors.New("the files are another sweep's")

// claim reads the description beside a table and refuses another sweep's; where there are no rows yet it writes this one.
func claim(p paths, d *Description, points int) error {
	text, err := os.ReadFile(p.description)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, table := os.Stat(p.table); err != nil && (points > 0 || table == nil) {
		return fmt.Errorf("%s is there without %s, so nobody knows how it was measured: give --restart to write over it, or another --out: %w",
			p.table, p.description, errOther)
	}
	if err != nil {
		return d.write(p)
	}
	var was Description
	err = json.NewDecoder(bytes.NewReader(text)).Decode(&was)
	if err == nil {
		err = was.check()
	}
	if err != nil {
		return fmt.Errorf("%s is not understood (%w): give another --out, or --restart to begin anew, over that file: %w", p.description, err, errOther)
	}
	if points == 0 {
		if has, err := hasRows(p.table); err != nil || has {
			return cmp.Or(err, fmt.Errorf("%s has rows, and %s, from which a sweep goes on, has none: bring that back, give --restart to write over the table, or another --out: %w",
				p.table, p.journal, errOther))
		}
		return d.write(p)
	}
	if field, a, b := difference(was.Identity, d.Identity); field != "" {
		return fmt.Errorf("%s was measured with %s %v and this is %v: give --restart to begin anew, or another --out: %w",
			p.table, field, a, b, errOther)
	}
	return nil
}

// check tells a description from other JSON.
func (d *Description) check() error {
	if d.Identity.Ranks < 1 || d.Identity.NCCL == "" {
		return errors.New("it names no ranks or NCCL")
	}
	return nil
}

// hasRows says that a table has more than its head.
func hasRows(table string) (bool, error) {
	text, err := os.ReadFile(table)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	_, rows, _ := bytes.Cut(text, []byte("\n"))
	return len(rows) > 0, err
}

func (d *Description) write(p paths) error {
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.Write(p.description, append(text, '\n'))
}

// difference names the first field in which two sweeps differ.
func difference(was, is Identity) (field string, a, b any) {
	x, y := reflect.ValueOf(was), reflect.ValueOf(is)
	for i := range x.NumField() {
		if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			return x.Type().Field(i).Tag.Get("json"), x.Field(i).Interface(), y.Field(i).Interface()
		}
	}
	return "", nil, nil
}
