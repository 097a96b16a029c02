package lockfile

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"kici/internal/core/glob"
	"kici/internal/kit/ecma"
)

// AssetDigest finds the files that the patterns name, from the repository root, and joins their paths and contents to the
// text that WorkflowHash covers; paths are in hash order. Wildcards match no name that starts with a dot, linked folders
// are not entered, a pattern starting with `!` excludes, and of an unreadable file only the path counts. No pattern, or
// no file, gives "" and no paths. The error is a pattern that is not a glob, or a root that cannot be read.
func AssetDigest(fsys fs.FS, patterns []string) (digest string, paths []string, err error) {
	include, exclude, err := splitPatterns(patterns)
	if err != nil || len(include) == 0 {
		return "", nil, err
	}
	paths, err = matchingFiles(fsys, patterns, include, exclude)
	if err != nil {
		return "", nil, err
	}
	slices.SortFunc(paths, ecma.Compare)
	var b strings.Builder
	for _, p := range paths {
		b.WriteString(p)
		b.WriteByte('\n')
		if content, err := fs.ReadFile(fsys, p); err == nil {
			b.WriteString(decoded(string(content)))
		}
	}
	return b.String(), paths, nil
}

func splitPatterns(patterns []string) (include, exclude []*glob.Pattern, err error) {
	for _, p := range patterns {
		text, negated := strings.CutPrefix(p, "!")
		g, err := glob.Compile(strings.TrimPrefix(text, "./"))
		if err != nil {
			return nil, nil, fmt.Errorf("resolve hash files: %w", err)
		}
		if negated {
			exclude = append(exclude, g)
		} else {
			include = append(include, g)
		}
	}
	return include, exclude, nil
}

// matchingFiles walks the folders that the patterns can reach, everything there but .git: its files are no sources and
// may be many. Patterns such as `.kici/*.json` name other dotted folders openly, so those are walked.
func matchingFiles(fsys fs.FS, patterns []string, include, exclude []*glob.Pattern) (paths []string, err error) {
	matches := func(list []*glob.Pattern, p string) bool {
		return slices.ContainsFunc(list, func(g *glob.Pattern) bool { return g.Match(p) })
	}
	seen := map[string]bool{}
	visit := func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && p == ".":
			return fmt.Errorf("resolve hash files: %w", err)
		case err != nil:
			return nil // a folder that is missing or unreadable has no files for us
		case entry.IsDir() && path.Base(p) == ".git":
			return fs.SkipDir
		case seen[p] || !isFile(fsys, p, entry) || !matches(include, p) || matches(exclude, p):
			return nil
		}
		seen[p] = true
		paths = append(paths, p)
		return nil
	}
	for _, base := range bases(patterns) {
		if err := fs.WalkDir(fsys, base, visit); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// bases are the folders or files where the including patterns begin: the part of each before its first wildcard. One that
// lies within another is left out.
func bases(patterns []string) []string {
	var found []string
	for _, p := range patterns {
		if strings.HasPrefix(p, "!") {
			continue
		}
		var literal []string
		for segment := range strings.SplitSeq(strings.TrimPrefix(p, "./"), "/") {
			if strings.ContainsAny(segment, `*?[]{}()!+@\`) {
				break
			}
			literal = append(literal, segment)
		}
		base := path.Join(literal...)
		if base == "" {
			base = "."
		}
		if fs.ValidPath(base) { // a pattern that leaves the repository reaches no file of it
			found = append(found, base)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	return slices.DeleteFunc(slices.Clone(found), func(b string) bool {
		return slices.ContainsFunc(found, func(o string) bool { return o != b && (o == "." || strings.HasPrefix(b, o+"/")) })
	})
}

// isFile also follows a link to a file.
func isFile(fsys fs.FS, p string, entry fs.DirEntry) bool {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.Type().IsRegular()
	}
	info, err := fs.Stat(fsys, p)
	return err == nil && info.Mode().IsRegular()
}
