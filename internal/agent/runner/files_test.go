//go:build unix

package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('use', async ({ files, $ }) => {
  const why = (p) => p.then(() => 'no error', (e) => e.message);
  await files.write('out/deep/a.txt', 'é\n'); await files.append('out/deep/a.txt', 'b');
  await files.write('out/run.sh', '#!/bin/sh\necho ran\n', { mode: 0o755 });
  await files.write('out/b.bin', new Uint8Array([0, 255])); await files.write('out/c.json', { k: [1] });
  const all = { text: await files.read('out/deep/a.txt'), bytes: [...(await files.readBytes('out/b.bin'))], json: (await files.readJson('out/c.json')).k, raw: await files.read('out/c.json'),
    ran: await $`+"`./out/run.sh`.text()"+`, list: await files.list('out/**'), one: await files.list('out/*.bin'), none: await files.list('nothing/*'),
    exists: [await files.exists('out'), await files.exists('out/nope')] };
  await files.remove('out/deep'); await files.remove('out/nope');
  return { ...all, left: await files.list('out/**'), absent: await why(files.read('nope')), bad: await why(files.readJson('out/run.sh')), root: await why(files.remove('.')),
    path: await (async () => files.read(undefined))().catch((e) => e.message), data: await (async () => files.write('x', undefined))().catch((e) => e.message) };
})`), nil).succeeded()
		got := strings.ReplaceAll(string(j.Complete.Outputs["use"]), j.dir, "DIR")
		// Engines differ in how they say what is wrong with JSON.
		for _, want := range []string{
			`"text":"é\nb","bytes":[0,255],"json":[1],"raw":"{\n  \"k\": [\n    1\n  ]\n}\n","ran":"ran\n"`,
			`"list":["out/b.bin","out/c.json","out/deep/a.txt","out/run.sh"],"one":["out/b.bin"],"none":[],"exists":[true,false]`,
			`"left":["out/b.bin","out/c.json","out/run.sh"],"absent":"stat DIR/nope: no such file or directory","bad":"out/run.sh: `,
			`"root":"remove .: the folder of the step stays","path":"files.read needs a path, not undefined"`,
			`"data":"a file cannot hold undefined"`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %s", got, want)
			}
		}
	})
}

func TestFilesHaveALimit(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := prepare(t, host, workflow(`step('use', async ({ files }) => files.read('big'))`))
		f, err := os.Create(filepath.Join(j.dir, "big"))
		must(t, err)
		must(t, f.Truncate(maxFile+1))
		must(t, f.Close())
		j.execute(nil)
		j.wait().failed("Step 'use' failed")
		if e := j.step("use").Error.Message; !strings.HasSuffix(e, "are over the limit of 64 MiB; use a command") {
			t.Error(e)
		}
	})
}
