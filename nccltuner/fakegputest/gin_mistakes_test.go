package fakegputest

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// What NCCL 2.32.3 is asked for and what is read back of it, and that backends of one communicator have no part in each other:
// whatever is left out must be found.
func TestGINFindsPlantedMistakes(t *testing.T) {
	t.Parallel()
	object := ginTest(t)
	for _, m := range []struct{ file, is, mistake, what string }{
		{"gin_versions.c", ".ginType = wants->type", ".ginType = DYN_NCCL_GIN_ANY", "backends"},
		{"gin_versions.c", ".ginConnectionType = DYN_NCCL_GIN_FULL,", "", "backends"},
		{"gin_versions.c", ".size = sizeof asked,", "", "backends"},
		{"gin_versions.c", ".ginStrongSignalsRequired = true,", "", "backends"},
		{"gin_versions.c", ".lsaSize = d->lsaSize", ".lsaSize = old->lsaSize", "backends"},
		{"gin_versions.c", ".signals = d->ginSignalCount", ".signals = old->ginSignalCount", "backends"},
		{"gin_versions.c", "backend_of_all(d->ginNetDeviceTypes, least(d->ginConnectionCount, 4))", "backend_of_all(d->ginNetDeviceTypes, 4)", "backends"},
		{"gin_versions.c", "if (has.ginSupport[known[i]]) types", "types", "backends"},
		{"gin.c", "if (came < OVER) break;", "", "backends"},
		{"gin.c", "life->lanes[l].waitNs = call_wait_ns();", "life->lanes[l].waitNs = l == LANE_CALLS ? call_wait_ns() : UINT64_MAX;", "late"},
		{"gin.c", "life->words = NULL;", "", "late"},
		{"gin_run.c", "gaveUp && atomic_load(&gin->each[i].proven)", "gaveUp", "late"},
		{"gin_run.c", "words != NULL && atomic_load(&gin->each[i].proven)", "words != NULL", "late"},
		{"gin.c", "seconds == 0 ? UINT64_MAX", "seconds == 0 ? step_seconds() * UINT64_C(1000000000)", "late"},
		{"gin.c", "&self->ginSecond", "&self->gin", "backends"},
		{"gin.c", "granted |= came != UNGRANTED;", "granted = came != UNGRANTED;", "backends"},
		{"gin.c", "&& gin->each[i].state.backend == backend", "", "backends"},
		{"gin_run.c", "dyn_host_ns() < until && !dyn_lsa_stopped(lsa)", "dyn_host_ns() < until", "lanes"},
		{"gin_run.c", "able |= room(", "able = room(", "backends"},
		{"gin_run.c", "if (!dyn_gin_usable(&life->state) || __atomic_load_n(&life->words->stop, __ATOMIC_ACQUIRE) == 0) continue;", "continue;", "late"},
		{"gin.c", "if (r != lsa->rank && of < depth) depth = of;", "if (of < depth) depth = of;", "backends"},
		{"gin.c", "if (r != lsa->rank && of < depth) depth = of;", "if (r != lsa->rank) depth = of;", "backends"},
		{"gin.c", "life->state.depth = shortest_queue(lsa, life);", "life->state.depth = shortest_queue(lsa, &lsa->gin->each[0]);", "backends"},
		{"gin_module.c", `DYN_GIN_LAYOUT_PREFIX "%d", version`, `DYN_GIN_LAYOUT_PREFIX "%d", 22809`, "backends"},
		{"gin.c", "(seen + legs + calls + 63) / 64 * 64", "seen + legs + calls + 4", "backends"},
		{"watch.c", "  if (!dyn_words_there(lsa)) return;\n", "", "late"},
		{"gin.c", "|| !dyn_context_lives(lsa) ", "", "late"},
		{"launch.c", "&& dyn_words_there(lsa), overGin", ", overGin", "late"},
		{"gin.c", "  give_back_numbers(life);\n  return fail", "  return fail", "memory"},
		{"memory.c", "if (s->done[l] != NULL) driver->cuEventDestroy_v2(s->done[l]);", ";", "memory"},
		{"turns.c", "done = put(of, stream);", "put(of, stream);", "memory"},
		{"turns.c", "done = driver->cuStreamSynchronize(stream) == 0 && done;", "driver->cuStreamSynchronize(stream);", "memory"},
		{"turns.c", "    driver->cuStreamDestroy_v2(stream);\n", "", "memory"},
		{"turns.c", "#define SIDES 2", "#define SIDES 1", "memory"},
		{"watch.c", "dyn_lsa_gone(lsa->id, lsa->rank, why, sizeof why)", "false", "late"},
		{"launch.c", "l.life = dyn_gin_of(lsa, action >> DYN_ACTION_BACKEND_SHIFT & 15)", "l.life = &lsa->gin->each[0]", "backends"},
		{"gin_run.c", "lane == LANE_CALLS && closely", "closely", "backends"},
		{"gin_run.c", "return work->count % (size_t)life->lanes[0].nRanks == 0 ? 2 : 3;", "return 2;", "backends"},
		{"gin_run.c", ".recv = own, .count = part,", ".recv = work->recv, .count = part,", "backends"},
		{"gin_run.c", "if (bytes_of(work) < DYN_GIN_SLOT_BYTES) return NULL;", "", "backends"},
		{"gin_run.c", "unsigned channels = mostCtas / DYN_GIN_ROLES;", "unsigned channels = DYN_GIN_CHANNELS;", "places"},
		{"gin_run.c", "unsigned channels = mostCtas / DYN_GIN_ROLES;", "unsigned channels = mostCtas;", "places"},
		{"gin_run.c", ".most = mostFlat < mostCtas ? mostFlat : mostCtas}", ".most = mostFlat}", "places"},
		{"gin_run.c", "gin != NULL && !gin->narrow && i", "gin != NULL && i", "places"},
		{"memory.c", "offers[r].mostCtas < most) most", "false) most", "places"},
		{"memory.c", "busy || ginStays", "busy", "behind"},
		{"watch.c", "if (!asks && dyn_gin_in_flight(lsa)) asks = dyn_thread_start(ask, NULL);", "dyn_gin_look(lsa);", "kept"},
		{"watch.c", "bool now = lsa->askedIn != round &&", "bool now = false &&", "kept"},
		{"memory.c", "dyn_lanes_of(lsa)->gaveUp[lane - lsa->lanes] = d->calls + DYN_KERNEL_MAX_BLOCKS;", "", "lanes"},
		{"memory.c", "d->lanes = dyn_lanes_of(lsa);", "", "lanes"},
		{"gin_run.c", "life->lanes[l].lanes = all;", "", "lanes"},
		{"gin_run.c", "all->gaveUp[NUM_LANES * (1 + (life - lsa->gin->each)) + l]", "all->gaveUp[NUM_LANES + l]", "lanes"},
		{"gin.c", ".stop = &words->stop,", ".stop = &words->stop, .lanes = dyn_lanes_of(lsa),", "lanes"},
		{"gin.c", "  atomic_store(&lsa->called, true);\n", "", "lanes"},
		{"launch.c", "l->gin->gin.about = about(lsa, l);", "", "late"},
		{"gin_run.c", "  call->gin.about = about;\n", "", "late"},
		{"gin.c", "&words->late[l], .lateNs", "&words->late[0], .lateNs", "late"},
		{"watch.c", "&words->late[lane], life->lanes[lane].lateNs", "&words->late[0], life->lanes[lane].lateNs", "late"},
		{"gin_run.c", "lane == LANE_CALLS ? dyn_gin_announce(life) : 0;", "lane == LANE_CALLS ? dyn_host_ns() : 0;", "expected"},
		{"gin_run.c", "lane == LANE_CALLS ? dyn_gin_announce(life) : 0;", "dyn_gin_announce(life);", "expected"},
		{"gin_run.c", "if (lane == LANE_CALLS && error == 0) dyn_gin_launched(life, announcedNs);", "", "expected"},
		{"gin_run.c", "if (lane == LANE_CALLS && error == 0) dyn_gin_launched", "if (lane == LANE_CALLS) dyn_gin_launched", "expected"},
		{"gin_carrier.c", "if (dyn_host_ns() - announcedNs > KEPT_NS) ask(life);", "", "expected"},
		{"gin_carrier.c", "life->lanes[LANE_CALLS].ended = life->expected.ended;", "", "expected"},
		{"launch.c", "if (lane == LANE_GRAPHS) dyn_gin_captured(&l->life->expected, DYN_EXPECTED_GRAPHS);", "", "expected"},
		{"gin_run.c", "  int error = dyn_host_driver()->cuLaunchKernelEx", "  if (lane == LANE_GRAPHS) dyn_gin_captured(&life->expected, DYN_EXPECTED_GRAPHS);\n  int error = dyn_host_driver()->cuLaunchKernelEx", "expected"},
		{"gin_carrier.c", "dyn_gin_captured(expected, DYN_EXPECTED_NO_GRAPHS);", "", "expected"},
		{"gin.c", "  life->expected = (struct dyn_carrier_expected){0};\n", "", "expected"},
		{"gin_carrier.c", "lsa->scratch->left = life->expected.captured;", "return;", "expected"},
		{"room.c", "s->left == NULL || !is_free(s) ||", "s->left == NULL ||", "expected"},
		{"gin_carrier.c", "life->lanes[LANE_GRAPHS].ended = life->expected.replayed;", "", "expected"},
		{"memory.c", "all > others ? all - others : 1", "all", "expected"},
		{"gin_carrier.c", "if (__atomic_load_n(expected->lapsed, __ATOMIC_SEQ_CST) == 0) return;", "return;", "expected"},
		{"gin_versions.c", "contexts = least(contexts, contexts_of(&offers[r]));", "contexts = contexts_of(&offers[r]);", "contexts"},
		{"gin_run.c", "hosts ? DYN_GIN_MAX_CONTEXTS : ", "", "contexts"},
		{"gin.c", ".contexts = gin->contexts,", ".contexts = DYN_GIN_MAX_CONTEXTS,", "contexts"},
		{"launch.c", "if (overGin || (", "if ((", "late"},
		{"launch.c", "lsa->lanes[LANE_CALLS].domain.calls != NULL", "lsa->bases[lsa->rank] != 0", "near"},
		{"watch.c", "dyn_gin_backend_name(life->state.backend)", "dyn_gin_backend_name(lsa->gin->each[0].state.backend)", "either"},
		{"gin_carrier.c", "__atomic_load_n(stop, __ATOMIC_ACQUIRE) == 0 &&", "", "expected"},
		{"gin_carrier.c", "life->riseNs > RISE_NS ? life->riseNs : RISE_NS", "RISE_NS", "expected"},
		{"gin_run.c", "  if (life->rises && dyn_gin_lapsed(life)) return DYN_CUDA_NOT_READY;\n", "", "expected"},
		{"gin_run.c", "parting ? least : waitNs, life->rises", "waitNs, life->rises", "expected"},
		{"gin.c", "if (done) gin->nccl->ncclCommAbort(gin->comm);", "if (done) gin->nccl->ncclCommDestroy(gin->comm);", "either"},
		{"gin_trips.c", "dyn_gin_trip_place(number, true)", "dyn_gin_trip_place(number, false)", "backends"},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			findsGINMistake(t, object, m.file, m.is, m.mistake, m.what)
		})
	}
}

// A rank that has heard all gives up before the others have waited in vain, if it is not itself the late one: nothing of this package runs beside it.
func TestGINWaitsForRanksThatWaitInVain(t *testing.T) {
	findsGINMistake(t, ginTest(t), "gin.c", "gin->lateS = 4 * at_most(PROBE_S);", "", "backends")
}

// ginTest is test_gin's object, the same for all mistakes, which all fill and compare with it.
func ginTest(t *testing.T) string {
	t.Helper()
	object := filepath.Join(t.TempDir(), "test_gin.o")
	if out, err := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("CC"), "gcc"), "-std=gnu11", "-D_GNU_SOURCE", "-w", "-O1", "-I", "../../kernels/host", "-c", "-o", object, "../preload/test/test_gin.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return object
}

// findsGINMistake links test_gin, which is object, with a source in which text stands for what is there once, and runs it.
func findsGINMistake(t *testing.T, object, file, is, mistake, what string) {
	const host = "../../kernels/host"
	dir := t.TempDir()
	planted, program := testbuild.Mistaken(t, dir, host, file, is, mistake), filepath.Join(dir, "test")
	objects, err := filepath.Glob(filepath.Join(testbuild.Objects(build, "../preload"), "host", "*.o"))
	if err != nil || len(objects) == 0 {
		t.Fatalf("no objects: %v", err)
	}
	args := []string{"-std=gnu11", "-D_GNU_SOURCE", "-w", "-I", host, "-o", program, object, planted,
		filepath.Join(testbuild.Objects(build, "../preload"), "glibc.o")}
	for _, o := range objects {
		if filepath.Base(o) != strings.TrimSuffix(file, ".c")+".o" {
			args = append(args, o)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, cmp.Or(os.Getenv("CC"), "gcc"), append(args, "-pthread", "-ldl")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	full, err := filepath.Abs(table)
	if err != nil {
		t.Fatal(err)
	}
	testbuild.Found(t, is, 6, func() bool { // a wait that is too short shows only where another rank is late enough
		run := testbuild.Command(ctx, program, filepath.Join(build, "libcuda.so.1"), filepath.Join(build, "libnccl.so.2"), what)
		run.Env = []string{"GIN_CARRIER=" + filepath.Join(testbuild.Objects(build, "../preload"), "test", "libnccl-net-dynamiccl-carrier.so"), "TMPDIR=" + dir, "FAKEGPU_DIR=" + dir, "FAKEGPU_TABLE=" + full, "TEST_ALARM_S=25"}
		out, err := run.CombinedOutput()
		t.Logf("%v: %s", err, out)
		return err != nil && ctx.Err() == nil && strings.Contains(string(out), "test/")
	})
}
