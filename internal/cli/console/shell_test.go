package console

import (
	"os/exec"
	"testing"
)

func TestShellWordsStayOneWord(t *testing.T) {
	for in, want := range map[string]string{"work": "work", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "a/b-c.d": "a/b-c.d"} {
		if got := ShellWord(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
		out, err := exec.Command("sh", "-c", "printf %s "+ShellQuote(in)).Output()
		if err != nil || string(out) != in {
			t.Errorf("%q through a shell: %q, %v", in, out, err)
		}
	}
}
