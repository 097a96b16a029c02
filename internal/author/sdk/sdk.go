// Package sdk holds the TypeScript that workflows are written against and run by: the authoring SDK that answers to
// `@kici-dev/sdk`, its schema builder, the program that describes workflows to the compiler and the one that runs a job.
// All of it is embedded, so that an author needs no installation.
package sdk

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed all:ts
var files embed.FS

// modules maps the names that a bundle may import to files below ts.
var modules = map[string]string{
	"@kici-dev/sdk":         "ts/sdk/index.ts",
	"@kici-dev/sdk/runtime": "ts/sdk/runtime.ts",
	"zod":                   "ts/sdk/zod.ts",
	"kici:runner":           "ts/runner/main.ts",
	"kici:compile":          "ts/compile/main.ts",
	"kici:compile-node":     "ts/compile/node.ts",
}

// Module gives the source of an embedded module. The name is one that authors and programs import (`@kici-dev/sdk`,
// `@kici-dev/sdk/runtime`, `zod`, `kici:runner`, `kici:compile`) or, for the modules' relative imports, a path as
// Resolve gives it. ok is false for a name that is not embedded.
func Module(name string) (source string, ok bool) {
	if file, known := modules[name]; known {
		name = file
	}
	raw, err := fs.ReadFile(files, name)
	if err != nil {
		return "", false
	}
	return string(raw), true
}

// Resolve turns an import inside an embedded module into the path of an embedded file. importer is "" for an import by
// module name, else the path that an earlier Resolve gave. ok is false when nothing embedded answers to it.
func Resolve(importer, name string) (file string, ok bool) {
	if file, known := modules[name]; known {
		return file, true
	}
	if importer == "" || !strings.HasPrefix(name, ".") {
		return "", false
	}
	file = path.Join(path.Dir(importer), name)
	for _, candidate := range []string{file, file + ".ts", strings.TrimSuffix(file, ".js") + ".ts"} {
		if info, err := fs.Stat(files, candidate); err == nil && !info.IsDir() {
			return candidate, true
		}
	}
	return "", false
}

// Digest is a hash of every embedded module that a bundle may contain, in hex. What was built from the modules ahead of
// time is good as long as it is the same.
func Digest() string {
	h := sha256.New()
	eachModule(func(name string, size int64) {
		raw, _ := files.ReadFile(name) // it is there: it has just been found
		_, _ = fmt.Fprintf(h, "%s %d\n", name, size)
		_, _ = h.Write(raw)
	})
	return hex.EncodeToString(h.Sum(nil))
}

// Size is how many modules there are and how many bytes they have. It is had at once and tells almost every change.
func Size() string {
	count, sum := 0, int64(0)
	eachModule(func(_ string, size int64) { count, sum = count+1, sum+size })
	return fmt.Sprintf("%d modules of %d bytes", count, sum)
}

func eachModule(do func(name string, size int64)) {
	// Walking an embedded file system cannot fail.
	_ = fs.WalkDir(files, "ts", func(name string, d fs.DirEntry, _ error) error {
		if info, err := d.Info(); err == nil && !d.IsDir() && !strings.HasSuffix(name, ".d.ts") {
			do(name, info.Size())
		}
		return nil
	})
}

// Declarations is the text of the declaration file that `kici init` writes: the types of `@kici-dev/sdk`, documented so
// that an editor explains every option.
func Declarations() string {
	var parts []string
	for _, name := range []string{"sdk", "sdk-use", "sdk-triggers", "sdk-tools"} {
		parts = append(parts, mustRead("ts/declarations/"+name+".d.ts"))
	}
	return strings.Join(parts, "\n")
}

// SchemaDeclarations is the text of the declarations of `zod` for a repository that has not installed zod itself.
// Written beside an installed zod they would hide its own types.
func SchemaDeclarations() string {
	return mustRead("ts/declarations/zod.d.ts")
}

// HostDeclarations is the text of the declarations of what every host offers beyond the language: console and timers.
func HostDeclarations() string {
	return mustRead("ts/declarations/host.d.ts")
}

// mustRead reads an embedded file whose presence the build guarantees.
func mustRead(name string) string {
	raw, err := fs.ReadFile(files, name)
	if err != nil {
		panic("embedded file " + name + " is missing")
	}
	return string(raw)
}
