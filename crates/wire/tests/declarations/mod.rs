//! Finds declarations of wire types in source text, and tables in a document. It understands only
//! the layout that `rustfmt` and the macros of this crate produce.

#![allow(clippy::unwrap_used, reason = "a source of another shape must fail the test")]

/// A declaration of a wire type, as one line of the document. Fields are `` `a: T, b: U` ``, or
/// `none`.
#[derive(Debug)]
pub enum Declaration {
    Record { name: String, fields: String },
    Request { name: String, op: String, fields: String, reply: String },
    Tag { name: String, values: String },
    Id { name: String, number: String },
}

/// The declarations in a source. `by_hand`: structs whose codec is written by hand.
pub fn declarations(source: &str, by_hand: &[&str]) -> Vec<Declaration> {
    let source: String = source
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut found = in_macro_lists(&source);
    for name in by_hand {
        if let Some(body) = struct_body(&source, name) {
            found.push(Declaration::Record { name: (*name).into(), fields: list(&fields(body)) });
        }
    }
    for call in source.split("codec_struct!(").skip(1) {
        let Some((name, rest)) = call.split_once(" {") else { continue };
        let order = rest.split_once('}').unwrap().0;
        let types = fields(struct_body(&source, name).unwrap());
        let ordered: Vec<_> = words(order)
            .map(|field| types.iter().find(|(name, _)| *name == field).unwrap().clone())
            .collect();
        found.push(Declaration::Record { name: name.into(), fields: list(&ordered) });
    }
    for call in source.split("codec_tag!(").skip(1) {
        let (name, rest) = call.split_once(" {").unwrap();
        let values: Vec<_> = words(rest.split_once('}').unwrap().0).collect();
        found.push(Declaration::Tag { name: name.into(), values: values.join(", ") });
    }
    if let Some((_, ids)) = source.split_once("newtype_id! {") {
        for line in ids.split_once("\n}").unwrap().0.lines() {
            if let Some((name, number)) = line.trim().trim_end_matches(");").split_once('(') {
                found.push(Declaration::Id { name: name.into(), number: number.into() });
            }
        }
    }
    found
}

/// The declarations inside `records!` and `requests!`.
fn in_macro_lists(source: &str) -> Vec<Declaration> {
    let mut found = Vec::new();
    for start in ["\nrecords! {\n", "\nrequests! {\n"] {
        for list_text in source.split(start).skip(1) {
            let list_text = list_text.split_once("\n}").unwrap().0;
            for (head, body) in blocks(list_text) {
                let fields = list(&fields(body));
                found.push(match head.split_once('(') {
                    None => Declaration::Record { name: head.into(), fields },
                    Some((name, rest)) => {
                        let (op, reply) = rest.split_once(") -> ").unwrap();
                        let (name, op, reply) = (name.into(), op.into(), reply.into());
                        Declaration::Request { name, op, fields, reply }
                    }
                });
            }
        }
    }
    found
}

/// Successive `head { body }` without braces in the body. Of a head only the line with the name,
/// without attributes.
fn blocks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split('}')
        .filter_map(|block| block.split_once('{'))
        .map(|(h, b)| (h.trim().lines().last().unwrap_or_default().trim(), b))
}

fn struct_body<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("pub struct {name} {{");
    Some(source.split_once(&start)?.1.split_once('}')?.0)
}

fn fields(body: &str) -> Vec<(String, String)> {
    body.lines()
        .filter_map(|line| line.trim().trim_start_matches("pub ").split_once(": "))
        .map(|(name, ty)| (name.into(), ty.trim_end_matches(',').into()))
        .collect()
}

fn list(fields: &[(String, String)]) -> String {
    if fields.is_empty() {
        return "none".into();
    }
    let fields: Vec<_> = fields.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
    format!("`{}`", fields.join(", "))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// A section of a document: from its heading to the next heading of any level.
pub fn section<'a>(doc: &'a str, heading: &str) -> &'a str {
    let rest =
        doc.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
    rest.split("\n#").next().unwrap()
}

/// The rows of all tables in a text, without code marks and heading rows.
pub fn doc_rows(text: &str) -> impl Iterator<Item = Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with('|')).map(|line| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    for at in (0..rows.len()).rev() {
        if rows[at][0].starts_with("---") {
            rows.drain(at - 1..=at);
        }
    }
    rows.into_iter()
}

/// The bytes of the block that begins with `` ```hex name ``.
pub fn hex_block(doc: &str, name: &str) -> Vec<u8> {
    let start = format!("```hex {name}\n");
    let block = doc.split_once(&start).unwrap_or_else(|| panic!("no example `{name}`")).1;
    let digits: String =
        block.split("```").next().unwrap().chars().filter(|c| !c.is_whitespace()).collect();
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}
