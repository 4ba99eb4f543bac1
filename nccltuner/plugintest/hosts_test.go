package plugintest

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// agreement runs a test of nccltuner/hosts, without the preload library, of which what it tries is a part.
func agreement(t *testing.T, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := testbuild.Command(ctx, filepath.Join(preloadTests(), program), args...)
	cmd.Env = []string{"TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0"}
	said, err := cmd.CombinedOutput()
	t.Logf("%s %v\n%s", program, args, said)
	if err != nil {
		t.Errorf("%s %v: %v", program, args, err)
	}
}

func TestHostsSources(t *testing.T) {
	testbuild.Sources(t, "../hosts/*.[ch]", "../hosts/test/*")
}

// Every interleaving of a rank's thread and the one that speaks for it, of several ranks, whatever the hub decides.
func TestFenceExhaustive(t *testing.T) {
	worlds := []string{"two", "gone", "three"}
	if long() {
		worlds = append(worlds, "row", "three-cut")
	}
	for _, world := range worlds {
		agreement(t, "fence_check", world)
	}
}

func TestFenceCheckFindsPlantedMistakes(t *testing.T) {
	for mistake := range 4 {
		agreement(t, "fence_check", "all", strconv.Itoa(mistake+1))
	}
}

// Hub and ranks in thousands of worlds of chance.
func TestHub(t *testing.T) {
	worlds := "6000"
	if long() {
		worlds = "200000"
	}
	agreement(t, "test_hub", worlds)
}

// How soon plans come into force on ranks that go on while they are asked.
func TestHubPace(t *testing.T) { agreement(t, "test_pace") }

func TestHubFindsPlantedMistakes(t *testing.T) {
	for of, mistakes := range map[string]int{"hub": 12, "rank": 7, "fence": 4} {
		for mistake := range mistakes {
			agreement(t, "test_hub", of, strconv.Itoa(mistake+1))
		}
	}
}

// Processes and sockets, and what may become of them; under the thread sanitizer as well.
func TestHosts(t *testing.T) {
	for _, threads := range []bool{false, true} {
		t.Run(map[bool]string{false: "all", true: "threads"}[threads], func(t *testing.T) {
			t.Parallel()
			if threads {
				agreement(t, "threads/test_hosts", "ids", "calm", "hub_stopped", "strangers", "by_hand", "forked", "no_descriptors", "closed", "samples", "busy", "rung", "trips", "trips_busy", "trips_lost", "trips_unread", "gin_begins", "count_apart", "gin_too_late", "gone")
			} else {
				agreement(t, "test_hosts")
			}
		})
	}
}

func TestHostsFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ file, what, is, mistake string }{
		{"hosts.c", "others_there", "    s->spoke = true;\n", "    s->spoke = true, s->soughtNs = 0;\n"}, // whoever listens is the hub
		{"hosts.c", "no_descriptors", "full = errno != EAGAIN && errno != EWOULDBLOCK;", "full = false;"},
		{"hosts.c", "forked", "for (struct guest *g = guests; g != NULL; g = g->next) dyn_close_file(g->wire.fd, &g->wire.file);", ""},
		{"hosts.c", "forked", "dyn_close_file(s->wire.fd, &s->wire.file);", ";"},
		{"hosts.c", "forked", "dyn_close_file(listener, &listenerIs);", ""},
		{"wire.c", "closed_for_files", "dyn_close_file(w->fd, &w->file);", "if (w->fd >= 0) close(w->fd);"},
		{"hosts.c", "closed_for_files", "dyn_close_file(listener, &listenerIs);", "if (listener >= 0) close(listener);"},
		{"hosts.c", "rank_killed", "if (g->greeted) dyn_hub_lost(&hub, g->number);", ""},
		{"hosts.c", "closed", "if (!s->over) give_up(s);", ";"},
		{"hosts.c", "hub_killed", "else if (s->soughtNs != 0 && nowNs - s->soughtNs > DYN_HOSTS_SEEK_NS) give_up(s);", ""},
		{"hosts.c", "strangers", "(g->greeted || m->nonce != listens.nonce)", "g->greeted"},
		{"hosts.c", "strangers", "&& (g->greeted || nowNs - g->cameNs < NS_PER_MS * STRANGERS_MS)", ""},
		{"hosts.c", "aborted", "if (raised != 0) dyn_fence_lose(fence, raised);", ""},
		{"hosts.c", "aborted", "if (raised != 0) dyn_fence_lose(fence, raised);", "dyn_fence_lower(fence);"},
		{"hosts.c", "ids", "(given != NULL && *given != '\\0') ||", ""},
		{"hosts.c", "ids", "switched_off() || ", ""},
		{"hosts_samples.c", "samples", "of->commId == s->rank.place.commId && ", ""},
		{"hosts.c", "left", "  if (s != NULL && s->spoke) dyn_hosts_rank_bye(&s->rank);\n", ""},
		{"hosts_gin.c", "gin_too_late", "if (s != NULL && s->spoke) dyn_hosts_rank_decline(&s->rank);", ""},
		{"hosts_gin.c", "gone_with_hub", "s->rank.gone != 0 || has_lost_hub(s);", "s->rank.gone != 0;"},
		{"hosts_gin.c", "gin_begins", "(s->over || s->away)", "true"},
		{"hub.c", "gone", "    miss(hub, c, nowNs);\n", ""},
		{"hub.c", "by_hand", "if (want > 0 && hub->has != NULL && !hub->has(hub->to, c->commId)) not++;", ""},
		{"hub.c", "left", "    rank->left = true;\n", ""},
		{"hub.c", "count_apart", "  c->apart = counts_apart(c);\n", ""},
		{"rank.c", "count_apart", ", .count = exchanges", ""},
		{"rank.c", "gin_hub_killed", "  if (r->verdict == DYN_ALL_UNDECIDED) r->verdict = DYN_ALL_DECLINE;\n", ""},
		{"samples.c", "samples", " || state == at + DYN_RING_CELLS", ""},
		{"samples.c", "samples", "|| head - next > DYN_RING_CELLS / 2", ""},
		{"samples.c", "samples", "(sample->flags & none) == 0 &&", ""},
		{"samples.c", "busy", "all += is_of_call(cell) && wanted(cell);", "all += is_of_call(cell);"},
		{"samples.c", "busy", "n < DYN_HOSTS_LOOK && is_of_call(cell) && wanted(cell)", "n < DYN_HOSTS_LOOK"},
		{"samples.c", "samples", "dyn_ring_store(ring, &heard[i]);\n  numHeard = 0;\n", "dyn_ring_store(ring, &heard[i]);\n"},
		{"samples.c", "lost_forked", "numPuts = 0, lost = 0;", "numPuts = 0;"},
		{"hosts.c", "rung", "bool looks = nowNs - lookedNs >= NS_PER_MS * TICK_MS;", "bool looks = true;"},
		{"samples.c", "trips_unread", "read || !is_of_put(&heard[i])", "true"},
		{"samples.c", "trips_unread", "read || !is_of_put(&heard[i])", "read"},
		{"samples.c", "trips", "(uint32_t)put->seq * 2654435769u", "((uint32_t)put->seq + (uint32_t)put->rank) * 2654435769u"}, // each rank tells of calls of its own
		{"samples.c", "trips", "all += is_of_call(cell) && wanted(cell);", "all += wanted(cell);"},
		{"samples.c", "trips", "  while (least > 0 && by[least - 1] <= room) room -= by[--least];\n", "  least = 0;\n"},
		{"samples.c", "trips", "some[numSome++] = cell;\n    else lost++;", "some[numSome++] = cell;"},
		{"samples.c", "trips", "at > 0 && is_before(put, some[at - 1])", "false"},
		{"samples.c", "trips", "numPuts--, firstPut = (firstPut + 1) % MOST_PUTS", "numPuts--"},
		{"samples.c", "trips_lost", "is_of_put(sample) ? MOST_HEARD / 2 : MOST_HEARD", "MOST_HEARD"},
		{"samples.c", "trips_lost", "heard[numHeard++] = *sample;\n  else lost++;", "heard[numHeard++] = *sample;"},
		{"hosts_samples.c", "trips", "DYN_HOSTS_TRIPS, samples + calls", "DYN_HOSTS_SAMPLES, samples + calls"},
		{"hub.c", "trips", "  case DYN_HOSTS_TRIPS:\n", ""},
		{"rank.c", "trips", "    if (((sample.flags & DYN_SAMPLE_TRIP) != 0) != (m->kind == DYN_HOSTS_TRIPS)) continue;\n", ""},
		{"plugin/hosts.c", "calm", "comm->closeLeft = comm->plan.closeEpochs;", "comm->closeLeft = comm->plan.closeEpochs + (uint64_t)(comm->rank == 1);"},                  // one rank times a call that no peer answers
		{"plugin/hosts.c", "calm", "comm->closeLeft = comm->plan.closeEpochs;", "comm->closeLeft = comm->self == (void *)(comm->record + 1) ? comm->plan.closeEpochs : 0;"}, // who came first on a host
		{"plugin/hosts.c", "calm", "comm->closeLeft = comm->plan.closeEpochs;", ""},
		{"hub.c", "strangers", "|| (rank->came && rank->host != m->host)", ""},
		{"ids.c", "ids", "if (id[i] != 0) return false;", ";"},
		{"ids.c", "ids", "|| mark.version != DYN_HOSTS_VERSION", ""},
		{"wire.c", "slow_peer", "if (w->numOut + n > MOST_KEPT) return false;", ""},
		{"wire.c", "by_hand", "  memmove(w->in, w->in + whole, w->numIn);\n", ""},
		{"wire.c", "slow_peer", "    memmove(w->out, w->out + n, w->numOut);\n", ""},
		{"wire.c", "strangers", "m->version == DYN_HOSTS_VERSION && ", ""},
		{"wire.c", "by_hand", "if (n == 0) return false;", "if (n == 0) return true;"},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			if agrees(t, m.file, m.is, m.mistake, m.what) {
				t.Error("not found")
			}
		})
	}
}

// agrees runs a case of test_hosts with a mistake in a file for what is there once, and says whether it passes.
func agrees(t *testing.T, file, is, mistake, what string) bool {
	t.Helper()
	dir, objects, compiler := t.TempDir(), filepath.Join(preloadTests(), "agree"), cmp.Or(os.Getenv("CC"), "gcc")
	folder, object := "../hosts", strings.TrimSuffix(file, ".c")
	if strings.HasPrefix(file, "plugin/") { // of the two files that are called hosts.c
		folder, file, object = "../plugin", filepath.Base(file), "plugin"
	}
	path, program := testbuild.Mistaken(t, dir, folder, file, is, mistake), filepath.Join(dir, "test_hosts")
	args := []string{"-std=gnu11", "-w", "-D_GNU_SOURCE", "-I", folder, "-include", "../hosts/test/hurry.h", "-o", program, path}
	for _, part := range []string{"hosts", "hosts_gin", "hosts_samples", "hub", "rank", "wire", "ids", "samples", "plugin", "test_hosts"} {
		if part != object {
			args = append(args, filepath.Join(objects, part+".o"))
		}
	}
	if out, err := exec.CommandContext(t.Context(), compiler, append(args, "-pthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 8 { // what processes do at one time is chance: most are found at once
		cmd := testbuild.Command(ctx, program, what)
		cmd.Env = append(os.Environ(), "TEST_PATIENCE=1")
		out, err := cmd.CombinedOutput()
		t.Logf("%v\n%s", err, out)
		if err != nil {
			return false
		}
	}
	return true
}

// What a rank of this host does by each word of the others (plugin/test/gin_apart.h).
func TestGINBetweenHostsFindsPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ file, is, mistake string }{
		{"gin.c", `{ return comm->gin && switched("1"); }`, "{ return comm->gin; }"},
		{"gin.c", "comm->allBind = dyn_hosts_exchanges(comm, true)", "comm->allBind = false"},
		{"gin.c", "comm->allBind = dyn_hosts_exchanges(comm, true)", "comm->allBind = true"},
		{"gin.c", "  dyn_hosts_exchanges(comm, false);\n", ""},
		{"hosts.c", "dyn_hosts_exchanges(comm, false); /* unless", "; /* unless"},
		{"hosts.c", "  if (!place.gin) dyn_hosts_exchanges(comm, false);\n", ""},
		{"hosts.c", ": settled == DYN_ALL_BEGIN;", ": counts;"},
		{"tuner.c", "comm->lost && !asked && comm->allBind ? DYN_CHOSEN_LOST : 0", "0"},
		{"gin.c", "dyn_host_ns() > until) break;", "false) break;"},
		{"gin.c", "  device->hosts->decline(comm->fence);\n", ""},
		{"gin.c", "return word == DYN_ALL_BEGIN;\n  device", "return true;\n  device"},
		{"tuner.c", "return !comm->lost;", "return true;"},
		{"tuner.c", "  dyn_pass_close(comm);\n", ""},
		{"tuner.c", "  dyn_pass_close(comm);\n", "  if (!member->broken) dyn_pass_close(comm);\n"},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			if said, err := plantedPlugin(t, "test_gin", m.file, m.is, m.mistake); err == nil || !strings.Contains(said, "gin_apart.h") && !strings.Contains(err.Error(), "killed") {
				t.Errorf("not found: %v\n%s", err, said)
			}
		})
	}
}
