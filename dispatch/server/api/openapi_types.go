package api

import "github.com/google/jsonschema-go/jsonschema"

// The parts of an OpenAPI document that Document uses.
type (
	document struct {
		OpenAPI    string                           `json:"openapi"`
		Info       info                             `json:"info"`
		Servers    []server                         `json:"servers"`
		Security   []map[string][]string            `json:"security"`
		Tags       []tag                            `json:"tags"`
		Paths      map[string]map[string]*operation `json:"paths"`
		Components components                       `json:"components"`
	}
	info struct {
		Title       string   `json:"title"`
		Description string   `json:"description"`
		Version     string   `json:"version"`
		License     *license `json:"license,omitempty"`
	}
	license struct {
		Name       string `json:"name"`
		Identifier string `json:"identifier"`
	}
	server struct {
		URL string `json:"url"`
	}
	tag struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	operation struct {
		OperationID string               `json:"operationId"`
		Summary     string               `json:"summary"`
		Description string               `json:"description,omitempty"`
		Tags        []string             `json:"tags"`
		Parameters  []parameter          `json:"parameters,omitempty"`
		RequestBody *requestBody         `json:"requestBody,omitempty"`
		Responses   map[string]*response `json:"responses"`
	}
	parameter struct {
		Name        string             `json:"name"`
		In          string             `json:"in"`
		Description string             `json:"description,omitempty"`
		Required    bool               `json:"required,omitempty"`
		Style       string             `json:"style,omitempty"`
		Explode     *bool              `json:"explode,omitempty"`
		Schema      *jsonschema.Schema `json:"schema"`
	}
	requestBody struct {
		Required bool                 `json:"required,omitempty"`
		Content  map[string]mediaType `json:"content"`
	}
	mediaType struct {
		Schema *jsonschema.Schema `json:"schema"`
	}
	response struct {
		Ref         string               `json:"$ref,omitempty"`
		Description string               `json:"description,omitempty"`
		Headers     map[string]*header   `json:"headers,omitempty"`
		Content     map[string]mediaType `json:"content,omitempty"`
	}
	header struct {
		Description string             `json:"description"`
		Schema      *jsonschema.Schema `json:"schema"`
	}
	components struct {
		Schemas         map[string]*jsonschema.Schema `json:"schemas"`
		Responses       map[string]*response          `json:"responses"`
		SecuritySchemes map[string]securityScheme     `json:"securitySchemes"`
	}
	securityScheme struct {
		Type        string `json:"type"`
		Scheme      string `json:"scheme"`
		Description string `json:"description"`
	}
)
