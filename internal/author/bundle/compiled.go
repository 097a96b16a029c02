package bundle

import (
	"bytes"
	"context"
	"embed"
	"runtime"
	"strings"

	"kici/internal/author/sdk"
	"kici/internal/kit/script"
)

// compiled holds each library in the engine's own code: a line with the size of the modules that it was made of, then the
// code. Reading it takes a tenth of the time that the text takes, and each job and each file that is compiled waits for
// it; so much so that not even a digest of the modules is worked out, and a change that leaves their size is noticed by a
// test.
//
//go:embed prebuilt/*.code
var compiled embed.FS

// LoadLibrary gives the engine all of ours that a script needs, so that Result.Part is all that is left to run. It may
// be done before there is a workflow.
func LoadLibrary(ctx context.Context, vm *script.VM, program string) error {
	raw, _ := compiled.ReadFile("prebuilt/" + program + ".code") // none is no code that fits
	size, code, _ := bytes.Cut(raw, []byte("\n"))
	// The code is that of a 64-bit little-endian machine.
	fits := runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"
	if fits && string(size) == sdk.Size() {
		return vm.RunCompiled(ctx, code)
	}
	l, err := libraries[program]()
	if err != nil {
		return err
	}
	return vm.Run(ctx, "<eval>", l.standalone())
}

// libraryLines is where the text of a library begins that is loaded by itself. The engine gives all texts the same
// name; by the line a frame of the library is told from one of the author's part.
const libraryLines = 1 << 20

// standalone is the library as a script of its own. It leaves the function that Result.Part calls, which removes itself.
func (l library) standalone() string {
	return strings.Repeat("\n", libraryLines) + `"use strict"; globalThis.__kiciStart = function (author) {
delete globalThis.__kiciStart;
const library = { exports: {} };
const program = function (module, exports, require) {
` + l.text + `};
program(library, library.exports, () => author(library));
};
`
}
