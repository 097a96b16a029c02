package compile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Fixtures are for trying workflows: they are told of, and change nothing of the lock file but the hash of their file.
func TestExportedFixturesAreTold(t *testing.T) {
	root := repository(t, map[string]string{
		".kici/workflows/ci.ts": `import { workflow, job, fixture } from '@kici-dev/sdk';
export const pushed = fixture('pushed', { event: 'push', branch: 'dev' });
export const more = [fixture('opened', { event: { type: 'pull_request', payload: { n: 1 } } }), pushed];
export default workflow('ci', { jobs: [job('a', { runsOn: 'linux', run: async () => {} })] });
`,
		".kici/workflows/fixtures.ts": "import { fixture } from '@kici-dev/sdk';\nexport const tag = fixture('tagged', { event: 'tag' });\n",
	})
	res, err := Compile(t.Context(), Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	want := []Fixture{
		{ID: "opened", File: ".kici/workflows/ci.ts", Options: []byte(`{"event":{"type":"pull_request","payload":{"n":1}}}`)},
		{ID: "pushed", File: ".kici/workflows/ci.ts", Options: []byte(`{"event":"push","branch":"dev"}`)},
		{ID: "tagged", File: ".kici/workflows/fixtures.ts", Options: []byte(`{"event":"tag"}`)},
	}
	if diff := cmp.Diff(want, res.Fixtures, cmpopts.IgnoreUnexported(Fixture{})); diff != "" {
		t.Errorf("fixtures (-want +got):\n%s", diff)
	}
	if len(res.Warnings) > 0 {
		t.Errorf("warnings %v", res.Warnings)
	}
	wantSources := []Source{{File: ".kici/workflows/ci.ts", Workflows: []string{"ci"}}, {File: ".kici/workflows/fixtures.ts", Workflows: []string{}}}
	if diff := cmp.Diff(wantSources, res.Sources); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
}
