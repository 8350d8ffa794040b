//! `/openapi.json`: built from the table of routes and the tables of fields. A test holds that the fields are the very
//! ones that the requests' readers take.

mod fields;

use serde_json::{Map, Value, json};

use crate::openai::accepted::ACCEPTED;
use crate::routes::ROUTES;
use fields::{BODIES, Body, Field};

/// The document as a page.
pub const PAGE: &str = include_str!("page.html");

/// OpenAPI 3.1.
pub fn document() -> Value {
    let mut paths = Map::new();
    for row in ROUTES {
        let path = row.path.replace("{*", "{");
        let methods = paths.entry(path.clone()).or_insert_with(|| json!({}));
        methods[row.method] = operation(row.method, &path, row.body, row.summary);
    }
    let schemas: Map<String, Value> = BODIES
        .iter()
        .map(|body| (body.name.to_owned(), schema(body)))
        .chain([("Error".to_owned(), error())])
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {"title": "m3", "version": env!("CARGO_PKG_VERSION"), "license": {"name": env!("CARGO_PKG_LICENSE")}},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x_api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"x_api_key": []}],
    })
}

fn operation(method: &str, path: &str, body: &str, summary: &str) -> Value {
    let failed = json!({"description": "why not", "content": {"application/json": {
        "schema": {"$ref": "#/components/schemas/Error"}}}});
    let mut operation = json!({
        "operationId": format!("{method}{}", path.replace(['/', '.', '-'], "_").replace(['{', '}'], "")),
        "summary": summary,
        "responses": {"200": {"description": "the answer"}, "default": failed},
    });
    let parameters: Vec<Value> = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if !body.is_empty() {
        let reference = json!({"$ref": format!("#/components/schemas/{body}")});
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": reference}}});
    }
    operation
}

fn schema(body: &Body) -> Value {
    let mut properties: Map<String, Value> = body
        .groups
        .iter()
        .flat_map(|group| group.iter())
        .map(|field| (field.0.to_owned(), property(field)))
        .collect();
    if body.takes_accepted {
        for (name, why) in ACCEPTED {
            let property = || json!({"description": format!("accepted without effect: {why}")});
            properties.entry((*name).to_owned()).or_insert_with(property);
        }
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !body.required.is_empty() {
        schema["required"] = json!(body.required);
    }
    schema
}

/// `null` is absent everywhere.
fn property((_, kind, description): &Field) -> Value {
    let mut property = match kind.split_once(':') {
        Some(("enum", values)) => json!({"enum": values.split('|').collect::<Vec<_>>()}),
        Some((kind, limits)) => {
            let (least, most) = limits.split_once("..").unwrap_or((limits, ""));
            let mut property = json!({"type": [kind, "null"]});
            for (name, limit) in [("minimum", least), ("maximum", most)] {
                if let Ok(limit) = limit.parse::<i64>() {
                    property[name] = limit.into();
                }
            }
            property
        }
        None if *kind == "any" => json!({}),
        None => {
            let mut kinds: Vec<&str> = kind.split('|').collect();
            kinds.push("null");
            json!({"type": kinds})
        }
    };
    if !description.is_empty() {
        property["description"] = (*description).into();
    }
    property
}

fn error() -> Value {
    let detail = json!({"type": "object", "properties": {"message": {"type": "string"}, "type": {"type": "string"},
        "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}, "required": ["message", "type"]});
    json!({"type": "object", "properties": {"error": detail}, "required": ["error"]})
}

#[cfg(test)]
mod tests;
