package live

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// launcher is a real one of MPI jobs: who starts so many processes, each of which knows its rank by a variable.
type launcher struct {
	name, program string
	args          []string
	rank          string
}

// launchers are those that there are. mpirun is a wheel that `.ci/mpi` gets; Slurm wants daemons of root's, so it is where somebody has them.
func launchers(t *testing.T) (all []launcher) {
	t.Helper()
	get := exec.CommandContext(t.Context(), filepath.Join(checkout, ".ci", "mpi"))
	var why strings.Builder
	get.Stderr = &why
	if path, err := get.Output(); err != nil {
		t.Logf("no mpirun, which is not tested: %v\n%s", err, why.String())
	} else {
		all = append(all, launcher{"mpirun", strings.TrimSpace(string(path)), []string{"--allow-run-as-root", "--oversubscribe", "-np", "4"}, "OMPI_COMM_WORLD_RANK"})
	}
	if out, err := exec.CommandContext(t.Context(), "srun", "--immediate=5", "-O", "-n", "1", "true").CombinedOutput(); err != nil {
		t.Logf("no Slurm, whose srun is not tested: %v\n%s", err, out)
	} else {
		all = append(all, launcher{"srun", "srun", []string{"-O", "-n", "4"}, "SLURM_PROCID"})
	}
	return all
}

// Both ways round, with launchers that fork their ranks from processes of their own: a run that starts the launcher, and a launcher that
// starts a run for each rank. Either way all ranks are tuned, choices agree, the one communicator is told of once, and no daemon is left.
func TestLaunchers(t *testing.T) {
	all := launchers(t)
	if len(all) == 0 {
		t.Skip("there is no launcher: see above")
	}
	for _, l := range all {
		t.Run("run "+l.name, func(t *testing.T) {
			t.Parallel()
			r := newRunRig(t)
			args := append([]string{"--", l.program}, l.args...)
			p := r.run(append(args, r.rankOf(l)...)...)
			if code := p.all(); code != 0 {
				t.Fatalf("exit code %d:\n%s\n%s", code, p.out.String(), p.err.String())
			}
			p.wants("what was gained", "in total")
			r.noDaemon()
			r.learned()
		})
		t.Run(l.name+" run", func(t *testing.T) {
			t.Parallel()
			r := newRunRig(t)
			args := append(append([]string{}, l.args...), r.build.Daemon, "run", "--")
			p := r.command(l.program, append(args, r.rankOf(l)...)...)
			if code := p.all(); code != 0 {
				t.Fatalf("exit code %d:\n%s\n%s", code, p.out.String(), p.err.String())
			}
			said := p.out.String() + p.err.String()
			if told, others := strings.Count(said, "in total"), strings.Count(said, "the run of another rank reports"); told != 1 || others != 3 {
				t.Errorf("%d runs told of the one communicator, and %d of another's run:\n%s", told, others, said)
			}
			r.noDaemonSoon()
			r.learned()
		})
		t.Run("run "+l.name+" whose rank fails", func(t *testing.T) {
			t.Parallel()
			r := newRunRig(t)
			args := append([]string{"--", l.program}, l.args...)
			if code := r.run(append(args, "sh", "-c", `[ "$`+l.rank+`" != 2 ] || exit 7`)...).all(); code != 7 {
				t.Errorf("exit code %d, want the rank's 7", code)
			}
			r.noDaemon()
		})
	}
}

// rankOf is the command of each rank, which finds its number.
func (r *runRig) rankOf(l launcher) []string {
	args := r.ranks("launched", 6000, 3000)
	words := []string{"sh", "-c", `exec "$@" --rank "$` + l.rank + `"`, "rank", args[0], "--sync", filepath.Join(r.tmp, "sync")}
	return append(words, args[2:]...)
}

// learned checks that all calls of all ranks agree, and that some were chosen for.
func (r *runRig) learned() {
	r.Helper()
	if rep := r.compare("launched"); rep.Compared != 6000 || rep.Chosen == 0 {
		r.Errorf("%d of 6000 calls compared, %d chosen", rep.Compared, rep.Chosen)
	}
}
