package fakegputest

import (
	"testing"
	"time"
)

// Of which communicator the plugin is told what a group has: whatever is mistaken must be found.
func TestGathersFindPlantedMistakes(t *testing.T) {
	t.Parallel()
	for _, m := range []struct{ file, is, mistake string }{
		{"gathers.c", "    differs |= in == 0 || in >= MOST_INSIDE || (known != 0 && in != known);\n", ""},
		{"gathers.c", "(known != 0 && in != known)", "false"},
		{"gathers.c", "    known = in;\n", ""},
		{"gathers.c", "differs || known == 0 ? 0 :", "known == 0 ? 0 :"},
		{"gathers.c", "differs || known == 0 ? 0 :", "differs ? 0 :"},
		{"gathers.c", "if (had) i = MOST;", ""},
		{"calls.c", "state != IN_PROGRESS) dyn", "true) dyn"},
		{"calls.c", "if (FUNC == DYN_ALL_GATHER) settle_waited", "if (false) settle_waited"},
		{"calls.c", "(settle_waited(comm, __builtin_return_address(0)), KEY(DYN_ALL_GATHER))", "KEY(DYN_ALL_GATHER)"},
		{"calls.c", "count > 0 ? dyn_gathers_gather(comm) : (void)0", "(void)0"},
		{"calls.c", "count > 0 ? dyn_gathers_gather(comm) : (void)0", "dyn_gathers_gather(comm)"},
		{"calls.c", "count > 0 ? dyn_gathers_broadcast(comm, root) : (void)0", "(void)0"},
		{"calls.c", "  if (request->work.collective == DYN_ALL_GATHER) dyn_gathers_gather(request->comm);\n", ""},
		{"gathers.c", "    atomic_store(&of->gathers, false);\n", ""},
		{"gathers.c", "  if (!inGroup) atomic_store(&of->averages, true);\n  else", " "},
		{"gathers.c", "  if (!inGroup) atomic_store(&of->averages, true);\n  else of->averaging = true, join(of);\n", "  atomic_store(&of->averages, true);\n"},
		{"gathers.c", "else of->averaging = true, join(of);", "else of->averaging = true;"},
		{"gathers.c", "of->averaging && !simulated", "of->averaging"},
		{"gathers.c", "    of->averaging = false;\n", ""},
		{"preload.c", "    dyn_gathers_ends(simulated);\n", ""},
		{"gathers.c", "    atomic_store(&all[i].averages, false);\n", ""},
		{"gathers.c", "    atomic_store(&all[i].windows, false);\n", ""},
		{"gathers.c", "  if (of != NULL) atomic_store(&of->windows, true);\n", ""},
		{"gathers.c", "  atomic_store(&of->windows, true);\n  atomic_store(&of->root", "  atomic_store(&of->root"},
		{"calls.c", "int winFlags), dyn_gathers_window(comm),", "int winFlags), (void)0,"},
		{"calls.c", "DYN_RARELY(op == AVERAGE) && ", ""},
		{"calls.c", "datatype >= FIRST_FLOAT && ", ""},
		{"calls.c", "datatype != DOUBLE && count > 0", "datatype != DOUBLE"},
		{"calls.c", "datatype != DOUBLE && ", ""},
		{"calls.c", "    if (FUNC == DYN_ALL_REDUCE) note_average(comm, count, datatype, OP); \\\n", ""},
		{"calls.c", "(note_average(comm, count, datatype, op), KEY(DYN_ALL_REDUCE))", "KEY(DYN_ALL_REDUCE)"},
		{"gathers.c", "before == DYN_NO_ROOT ? root : DYN_ROOTS", "DYN_ROOTS"},
		{"gathers.c", "result == IN_PROGRESS && atomic_load(&of->root) != DYN_NO_ROOT", "result == IN_PROGRESS"},
		{"gathers.c", "else if (atomic_load(&of->pending) == 0) atomic_store", "else atomic_store"},
		{"gathers.c", "  differs = true;\n", ""},
		{"gathers.c", "  atomic_store(&of->root, DYN_ROOTS);\n  pthread", "  pthread"},
		{"gathers.c", "  dyn_gathers_lost(of);\n}", "}"},
		{"making.c", "of->inThread = own > 0;", "of->inThread = true;"},
		{"making.c", "of->inThread = own > 0;", ""},
		{"making.c", "dyn_gathers_made(m->gathers, m->left);", ";"},
		{"making.c", "found->returned ? found->left : comm_of(found)", "comm_of(found)"},
		{"making.c", "found->returned ? found->left : comm_of(found)", "found->late != NULL ? NULL : comm_of(found)"},
		{"making.c", "found->returned ? found->left : comm_of(found)", "found->late != NULL ? found->late : comm_of(found)"}, // a split's parent
		{"making.c", "  if (of != NULL && found != NULL) found->gathers = of;\n", ""},
		{"making.c", "else if (m->gathers != NULL) dyn_gathers_lost(m->gathers);", ""},
		{"making.c", "makings[i].gathers == of) makings[i].gathers = &none;", "false) break;"},
		{"making.c", "*any = candidates + unlisted > 0;", "*any = true;"},
		{"making.c", "found != NULL && found->late == NULL ? dyn_bound_reserve", "found != NULL ? dyn_bound_reserve"},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			findsPreloadMistake(t, "test_making", "../preload", m.file, m.is, m.mistake, 1, time.Minute)
		})
	}
}
