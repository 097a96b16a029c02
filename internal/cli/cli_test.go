package cli

import "testing"

func TestVerbIsMadeAloneAndIsTheSameAsAmongAll(t *testing.T) {
	all := newRoot(Process{}, nil)
	for _, v := range verbs() {
		among, _, err := all.Find([]string{v.name})
		if err != nil || among == all {
			t.Errorf("%s is not found among all: %v", v.name, err)
			continue
		}
		alone := newRoot(Process{}, []string{v.name, "--help"})
		if made := alone.Commands(); len(made) != 1 || made[0].Name() != v.name || made[0].CommandPath() != among.CommandPath() || made[0].UsageString() != among.UsageString() {
			t.Errorf("%s alone is not what it is among all", v.name)
		}
	}
	for _, args := range [][]string{nil, {"--help"}, {"help", "agent"}, {"__complete", "agent", ""}, {"agen"}} {
		if got := len(newRoot(Process{}, args).Commands()); got != len(all.Commands()) {
			t.Errorf("%q finds %d verbs of %d", args, got, len(all.Commands()))
		}
	}
}
