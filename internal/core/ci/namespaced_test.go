package ci

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestSecretsOfContextsKeepTheirOrder(t *testing.T) {
	n := NamespacedSecrets{}.Put("prod", map[string]string{"K": "1"}).Put("base", map[string]string{"K": "2"}).Put("alpha", nil)
	n = n.Put("prod", map[string]string{"K": "3"})
	raw, err := json.Marshal(n)
	if want := `{"base":{"K":"2"},"alpha":null,"prod":{"K":"3"}}`; err != nil || string(raw) != want {
		t.Fatalf("%s, %v; want %s", raw, err, want)
	}
	var back NamespacedSecrets
	if err := json.Unmarshal(raw, &back); err != nil || !reflect.DeepEqual(back, n) {
		t.Errorf("read back as %v, %v", back, err)
	}
	if n.Of("base")["K"] != "2" || n.Of("nowhere") != nil {
		t.Errorf("base has %v, nowhere %v", n.Of("base"), n.Of("nowhere"))
	}
}

func TestSecretsOfContextsAreAnObject(t *testing.T) {
	for text, good := range map[string]bool{`null`: true, `{}`: true, `{"a":{"K":"v"},"a":{}}`: true, `[]`: false, `"a"`: false,
		`{"a":1}`: false, `{"a":{"K":1}}`: false, `{`: false} {
		var n NamespacedSecrets
		if err := json.Unmarshal([]byte(text), &n); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}
