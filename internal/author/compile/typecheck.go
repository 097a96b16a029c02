package compile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"kici/internal/author/bundle"
)

// typecheck has the TypeScript compiler look at the workflows, with the settings beside them. What it finds are
// diagnostics with its own codes.
func typecheck(ctx context.Context, root, kiciDir string) (Diagnostics, error) {
	config := filepath.Join(kiciDir, "tsconfig.json")
	if _, err := os.Stat(filepath.Join(root, config)); err != nil {
		return nil, fmt.Errorf("check types: there is no %s: run `kici init --force` to make one", filepath.ToSlash(config))
	}
	tsc, err := findTypeScript(filepath.Join(root, kiciDir))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, tsc, "--noEmit", "--pretty", "false", "-p", config)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, &out, &out
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	list := typeErrors(root, out.String())
	if err != nil && len(list) == 0 {
		return nil, fmt.Errorf("check types: %w: %s", err, strings.TrimSpace(out.String()))
	}
	return list, nil
}

// findTypeScript takes the compiler that is installed for the workflows, else the one on PATH.
func findTypeScript(folder string) (string, error) {
	for dir := folder; ; dir = filepath.Dir(dir) {
		tsc := filepath.Join(dir, "node_modules", ".bin", "tsc")
		if info, err := os.Stat(tsc); err == nil && !info.IsDir() {
			return tsc, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	tsc, err := exec.LookPath("tsc")
	if err != nil {
		return "", errors.New("check types: TypeScript is neither installed for the workflows nor on PATH as tsc: run `npm install --save-dev typescript`")
	}
	return tsc, nil
}

var typeError = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(.+)\((\d+),(\d+)\): )?error (TS\d+): (.*)$`)
})

// typeErrors reads what the TypeScript compiler prints for programs: a line for each error, and lines that begin with a
// space for what it has to add.
func typeErrors(root, out string) Diagnostics {
	var list Diagnostics
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		match := typeError().FindStringSubmatch(line)
		switch {
		case match != nil:
			d := Diagnostic{File: match[1], Severity: SeverityError, Code: match[4], Text: match[5]}
			d.Line, _ = strconv.Atoi(match[2]) // digits, or nothing where no place is known
			d.Column, _ = strconv.Atoi(match[3])
			u := unit{root: root}
			if d.Line > 0 {
				d.Frame = u.frame(bundle.Place{File: d.File, Line: d.Line, Column: d.Column})
			}
			list = append(list, d)
		case strings.HasPrefix(line, " ") && len(list) > 0:
			list[len(list)-1].Text += "\n  " + line
		}
	}
	list.sort()
	return list
}
