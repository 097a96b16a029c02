//go:build unix

package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kici/internal/testenv"
)

// Packages of the registry in a workflow: those that need nothing of Node run on either host, and one that does takes the
// workflow to Node.
func TestPackagesOfTheRegistry(t *testing.T) {
	t.Parallel()
	installed := testenv.Packages(t, "testdata/npm")
	pure := `import semver from 'semver';
import { z } from 'zod';
`
	uses := `const made = z.object({ v: z.string() }).parse({ v: '1.2.3' });
  const out = { next: semver.inc(made.v, 'minor'), fits: semver.satisfies('2.1.0', '^2.0.0'), bad: z.number().safeParse('x').success`
	tests := []struct{ name, host, source, want string }{
		{"pure packages on the embedded host", "embedded", pure + workflow("step('use', async () => { "+uses+" }; return out; })"), `{"next":"1.3.0","fits":true,"bad":false}`},
		{"the same beside one that needs Node", "Node", "import { execa } from 'execa';\n" + pure + workflow("step('use', async () => { "+uses+", said: (await execa('echo', ['from execa'])).stdout }; return out; })"),
			`{"next":"1.3.0","fits":true,"bad":false,"said":"from execa"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := prepare(t, "embedded", tt.source)
			must(t, os.Symlink(filepath.Join(installed, "node_modules"), filepath.Join(j.dir, ".kici", "node_modules")))
			j.execute(nil)
			j.wait().succeeded()
			if first := j.Logs[JobLog][0]; !strings.Contains(first, tt.host) {
				t.Errorf("it ran on another host: %s", first)
			}
			equalJSON(t, j.Complete.Outputs["use"], tt.want)
		})
	}
}
