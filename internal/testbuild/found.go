package testbuild

import "testing"

// Found reports a mistake that none of some tries finds: who finds it may take who runs when, so on a busy machine more than one.
func Found(t *testing.T, mistake string, tries int, finds func() bool) {
	t.Helper()
	for range tries {
		if finds() {
			return
		}
	}
	t.Errorf("mistake %s was not found", mistake)
}
