package bundle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"testing"

	"modernc.org/libc"
	"modernc.org/libquickjs"

	"kici/internal/author/sdk"
)

var update = flag.Bool("update", false, "write what the tests get as what they want")

// A stale library would not be used, but made again in every process.
func TestPrebuiltLibrariesAreCurrent(t *testing.T) {
	for program := range programs {
		l, err := makeLibrary(program)
		if err != nil {
			t.Fatal(err)
		}
		want, err := prebuiltText(l)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{
			"prebuilt/" + program + ".js":   want,
			"prebuilt/" + program + ".code": sdk.Size() + "\n" + string(compile(t, l.standalone())),
		}
		for path, want := range files {
			check(t, path, want)
		}
	}
}

// compile turns a script into the engine's own code, without the text of its functions: that would be two thirds of it,
// and nobody asks a function of ours for its text. Places of stack traces stay.
func compile(t *testing.T, source string) []byte {
	t.Helper()
	tls := libc.NewTLS()
	defer tls.Close()
	runtime := libquickjs.XJS_NewRuntime(tls)
	libquickjs.XJS_SetMaxStackSize(tls, runtime, libquickjs.MaxStackSlots)
	libquickjs.XJS_SetStripInfo(tls, runtime, libquickjs.MJS_STRIP_SOURCE)
	realm := libquickjs.XJS_NewContext(tls, runtime)
	defer libquickjs.XJS_FreeRuntime(tls, runtime)
	defer libquickjs.XJS_FreeContext(tls, realm)
	text, err1 := libc.CString(source)
	name, err2 := libc.CString("<eval>")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer libc.Xfree(tls, text)
	defer libc.Xfree(tls, name)
	function := libquickjs.XJS_Eval(tls, realm, text, libquickjs.Tsize_t(len(source)), name, libquickjs.MJS_EVAL_FLAG_COMPILE_ONLY)
	if libquickjs.XJS_HasException(tls, realm) != 0 {
		t.Fatal("the library does not parse")
	}
	defer libquickjs.XFreeValue(tls, realm, function)
	const word = 8 // as LoadLibrary demands
	size := tls.Alloc(word)
	defer tls.Free(word)
	code := libquickjs.XJS_WriteObject(tls, realm, size, function, libquickjs.MJS_WRITE_OBJ_BYTECODE)
	if code == 0 {
		t.Fatal("the library cannot be written")
	}
	defer libquickjs.Xjs_free(tls, realm, code)
	return bytes.Clone(libc.GoBytes(code, int(binary.LittleEndian.Uint64(libc.GoBytes(size, word)))))
}

func check(t *testing.T, path, want string) {
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not made of the embedded modules as they are: run `go generate ./internal/author/bundle` (%v)", path, err)
	}
}
