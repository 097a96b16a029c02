package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/seal"
)

func TestSecretOutputsAreSealedAsTheServerOpensThem(t *testing.T) {
	run, err := seal.NewKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	outputs := map[string]string{"PASSWORD": "s3cr3t-output", "EMPTY": ""}
	sealed, err := sealOutputs(run.Public, outputs)
	if err != nil {
		t.Fatal(err)
	}
	opened := map[string]string{}
	for name, output := range sealed {
		agreed, err := seal.Agree(run.Private, output.AgentPublicKey, seal.RunOutputs)
		if err != nil {
			t.Fatal(err)
		}
		value, err := agreed.Open(output.Encrypted)
		if err != nil {
			t.Fatal(err)
		}
		opened[name] = string(value)
	}
	if diff := cmp.Diff(outputs, opened); diff != "" {
		t.Errorf("outputs (- given, + opened):\n%s", diff)
	}
	if _, err := sealOutputs("AAAA", outputs); err == nil {
		t.Error("a malformed key was accepted")
	}
}
