package forge_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"kici/internal/server/forge"
	"kici/internal/vectors"
)

func TestVectorsSignature(t *testing.T) {
	type config struct {
		Method, Secret, Token, HeaderName string
		Allowlist                         []string
	}
	type input struct {
		Fn, Body, Signature, Secret string
		Headers                     map[string]string
		Config                      config
		ClientIP                    string `json:"clientIp"`
	}
	for _, c := range vectors.Load(t, "signature.json") {
		t.Run(c.Name, func(t *testing.T) {
			var in input
			var want bool
			if err := errors.Join(json.Unmarshal(c.Input, &in), json.Unmarshal(c.Expected, &want)); err != nil {
				t.Fatal(err)
			}
			var got bool
			switch in.Fn {
			case "github":
				got = forge.VerifyGitHub([]byte(in.Body), in.Signature, in.Secret)
			case "generic":
				v := forge.Verification{Method: in.Config.Method, Secret: in.Config.Secret + in.Config.Token,
					Header: in.Config.HeaderName, Allowlist: in.Config.Allowlist}
				got = v.Passes(forge.Request{Body: []byte(in.Body), Headers: in.Headers, ClientIP: in.ClientIP})
			default:
				t.Fatalf("unknown function %q", in.Fn)
			}
			if got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestRotationAcceptsBothSecrets(t *testing.T) {
	for method, member := range map[string]string{forge.MethodBearer: "token", forge.MethodAPIKey: "key"} {
		v, err := forge.ParseVerification(method, json.RawMessage(`{"`+member+`":"old","`+member+`Next":"new"}`))
		if err != nil {
			t.Fatal(err)
		}
		for sent, want := range map[string]bool{"old": true, "new": true, "": false, "older": false} {
			if got := v.Passes(forge.Request{Headers: map[string]string{v.Header: sent}}); got != want {
				t.Errorf("%s %q: %v, want %v", method, sent, got, want)
			}
		}
	}
}

func TestAllowlistTakesRanges(t *testing.T) {
	v, err := forge.ParseVerification(forge.MethodIP, json.RawMessage(`{"allowlist":["10.1.2.3/8","2001:DB8::1","::ffff:192.0.2.7"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]bool{
		"10.200.0.1": true, "11.0.0.1": false, "2001:db8::1": true, "2001:db8::2": false, "192.0.2.7": true, "": false,
	} {
		if got := v.Passes(forge.Request{ClientIP: ip}); got != want {
			t.Errorf("%q: %v, want %v", ip, got, want)
		}
	}
}

func TestVerificationProblemsNameTheField(t *testing.T) {
	tests := []struct {
		name, method, config, want string
	}{
		{"secret missing", forge.MethodHMAC, `{}`, "verificationConfig.secret: is required"},
		{"token missing", forge.MethodBearer, ``, "verificationConfig.token: is required"},
		{"mistyped member", forge.MethodHMAC, `{"secret":"s","header":"x"}`, "verificationConfig.header: is unknown; hmac_sha256 takes secret, secretNext, headerName"},
		{"wrong type", forge.MethodHMAC, `{"secret":5}`, "verificationConfig.secret: must be a text"},
		{"not an object", forge.MethodHMAC, `[]`, "verificationConfig: must be an object"},
		{"bad header", forge.MethodAPIKey, `{"key":"k","header":"a b"}`, "verificationConfig.header: \"a b\" is not the name"},
		{"empty list", forge.MethodIP, `{"allowlist":[]}`, "verificationConfig.allowlist: must list at least one"},
		{"bad address", forge.MethodIP, `{"allowedIps":["10.0.0"]}`, "\"10.0.0\" is neither an address nor a range"},
		{"unknown method", "md5", `{}`, "verificationMethod: must be one of"},
		{"none takes nothing", forge.MethodNone, `{"secret":"s"}`, "verificationConfig.secret: is unknown; none takes nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := forge.ParseVerification(tt.method, json.RawMessage(tt.config))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
