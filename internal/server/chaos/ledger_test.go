package chaos

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNotesOfOneTokenAreOneExecution(t *testing.T) {
	notes := strings.Join([]string{
		"push-1\tladder\ttest (x)\trun\tt2\tagent-1\tbegin\t20.000000",
		"push-0\tladder\tbuild\tfetch\tt1\tagent-0\tbegin\t10.500000",
		"push-0\tladder\tbuild\tfetch\tt1\tagent-0\tline\t10.600000",
		"push-0\tladder\tbuild\tfetch\tt1\tagent-0\tend\t10.700000",
		"push-0\tladder\tbuild\tmake\tt1\tagent-0\tbegin\t10.900000",
		"push-0\tladder\tbuild\tmake\tt1\tagent-0\tline\t11.000000",
	}, "\n")
	got, err := readLedger(strings.NewReader(notes))
	if err != nil {
		t.Fatal(err)
	}
	want := []execution{
		{Mark: "push-0", Workflow: "ladder", Job: "build", Agent: "agent-0", Token: "t1", Begun: 10_500, Last: 11_000,
			Steps: []string{"fetch", "make"}, Finished: []string{"fetch"}},
		{Mark: "push-1", Workflow: "ladder", Job: "test (x)", Agent: "agent-1", Token: "t2", Begun: 20_000, Last: 20_000, Steps: []string{"run"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNotesThatCannotBeAreErrors(t *testing.T) {
	for _, line := range []string{"", "push-0\tladder", "a\tb\tc\td\te\tf\tbegin\tnoon", "a\tb\tc\td\te\tf\tbegin\t10"} {
		if _, err := parseNote(line); err == nil {
			t.Errorf("%q was taken for a note", line)
		}
	}
}
