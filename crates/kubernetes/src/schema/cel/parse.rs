//! The Common Expression Language, read into a tree whose height is bounded, so that walking it needs a
//! small stack. Macros are nodes of their own.

use super::functions::Function;
use super::lex::{Token, tokens};

/// Bytes of one expression.
const SOURCE_BYTES_MAX: usize = 10 << 10;
/// Expressions within expressions.
const NESTING_MAX: usize = 40;
pub const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Macro {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

#[derive(Clone, Debug)]
pub enum Expr {
    Literal(Literal),
    Name(String),
    List(Vec<Expr>),
    Map(Vec<(Expr, Expr)>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    /// `a && b && ...`
    All(Vec<Expr>),
    Any(Vec<Expr>),
    If(Box<(Expr, Expr, Expr)>),
    /// From left to right.
    Chain(Box<Expr>, Vec<(Operator, Expr)>),
    /// A value, and what is asked of it step by step.
    Steps(Box<Expr>, Vec<Step>),
    /// `has(a.b)`: of what, and the field.
    Has(Box<Expr>, String),
    Call(Function, Vec<Expr>),
}

#[derive(Clone, Debug)]
pub enum Step {
    Field(String),
    Index(Expr),
    Call(Function, Vec<Expr>),
    /// `given.all(name, body)`; a map may have a condition too.
    Macro {
        which: Macro,
        name: String,
        condition: Option<Expr>,
        body: Box<Expr>,
    },
}

pub fn parse(source: &str) -> Result<Expr, String> {
    if SOURCE_BYTES_MAX < source.len() {
        return Err(format!("an expression has at most {SOURCE_BYTES_MAX} bytes"));
    }
    let mut parser = Parser { tokens: tokens(source)?, at: 0, nesting: 0 };
    let expr = parser.expr()?;
    match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(format!("syntax error: unexpected {token}")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    nesting: usize,
}

type Parsed<T> = Result<T, String>;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn must(&mut self, sign: &str) -> Parsed<()> {
        if self.takes(sign) {
            return Ok(());
        }
        let found = self.peek().map_or_else(|| "the end".to_owned(), ToString::to_string);
        Err(format!("syntax error: expected '{sign}', found {found}"))
    }

    fn expr(&mut self) -> Parsed<Expr> {
        self.nesting += 1;
        if NESTING_MAX < self.nesting {
            return Err(format!("expressions are nested more than {NESTING_MAX} levels deep"));
        }
        let condition = self.any()?;
        let expr = if self.takes("?") {
            let then = self.any()?;
            self.must(":")?;
            let otherwise = self.expr()?;
            Expr::If(Box::new((condition, then, otherwise)))
        } else {
            condition
        };
        self.nesting -= 1;
        Ok(expr)
    }

    fn any(&mut self) -> Parsed<Expr> {
        let mut terms = vec![self.all()?];
        while self.takes("||") {
            terms.push(self.all()?);
        }
        Ok(one_or(terms, Expr::Any))
    }

    fn all(&mut self) -> Parsed<Expr> {
        let mut terms = vec![self.relation()?];
        while self.takes("&&") {
            terms.push(self.relation()?);
        }
        Ok(one_or(terms, Expr::All))
    }

    fn relation(&mut self) -> Parsed<Expr> {
        use Operator::{Equal, Greater, GreaterEqual, In, Less, LessEqual, NotEqual};
        let signs = [
            ("==", Equal),
            ("!=", NotEqual),
            ("<", Less),
            ("<=", LessEqual),
            (">", Greater),
            (">=", GreaterEqual),
            ("in", In),
        ];
        self.chain(&signs, Parser::sum)
    }

    fn sum(&mut self) -> Parsed<Expr> {
        self.chain(&[("+", Operator::Add), ("-", Operator::Subtract)], Parser::product)
    }

    fn product(&mut self) -> Parsed<Expr> {
        use Operator::{Divide, Modulo, Multiply};
        self.chain(&[("*", Multiply), ("/", Divide), ("%", Modulo)], Parser::unary)
    }

    fn chain(&mut self, signs: &[(&str, Operator)], term: fn(&mut Parser) -> Parsed<Expr>) -> Parsed<Expr> {
        let first = term(self)?;
        let mut rest = Vec::new();
        while let Some((_, operator)) = signs.iter().find(|(sign, _)| self.takes(sign)) {
            rest.push((*operator, term(self)?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Chain(Box::new(first), rest) })
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let (mut nots, mut minuses) = (0_u32, 0_u32);
        while self.takes("!") {
            nots += 1;
        }
        while nots == 0 && self.takes("-") {
            minuses += 1;
        }
        let member = self.member()?;
        // Two undo each other, but for what they ask of the type.
        let wrapped = |count: u32, wrap: fn(Box<Expr>) -> Expr, member: Expr| match count {
            0 => member,
            count if count % 2 == 1 => wrap(Box::new(member)),
            _ => wrap(Box::new(wrap(Box::new(member)))),
        };
        Ok(wrapped(minuses, Expr::Negate, wrapped(nots, Expr::Not, member)))
    }

    fn member(&mut self) -> Parsed<Expr> {
        let first = self.primary()?;
        let mut steps = Vec::new();
        loop {
            if self.takes(".") {
                if self.takes("?") {
                    return Err("optional fields are not supported".to_owned());
                }
                let name = self.name()?;
                steps.push(if self.takes("(") { self.method(&name)? } else { Step::Field(name) });
            } else if self.takes("[") {
                if self.takes("?") {
                    return Err("optional fields are not supported".to_owned());
                }
                steps.push(Step::Index(self.expr()?));
                self.must("]")?;
            } else if matches!(first, Expr::Name(_)) && self.peek() == Some(&Token::Sign("{")) {
                return Err("messages are not supported".to_owned());
            } else {
                break;
            }
        }
        Ok(if steps.is_empty() { first } else { Expr::Steps(Box::new(first), steps) })
    }

    fn name(&mut self) -> Parsed<String> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            Some(Token::Sign("in")) => Err("syntax error: 'in' is no name".to_owned()),
            other => {
                let found = other.map_or_else(|| "the end".to_owned(), ToString::to_string);
                Err(format!("syntax error: expected a name, found {found}"))
            }
        }
    }

    fn method(&mut self, name: &str) -> Parsed<Step> {
        let which = match name {
            "all" => Some(Macro::All),
            "exists" => Some(Macro::Exists),
            "exists_one" | "existsOne" => Some(Macro::ExistsOne),
            "map" => Some(Macro::Map),
            "filter" => Some(Macro::Filter),
            _ => None,
        };
        let mut args = self.list(")")?;
        let Some(which) = which else {
            return Function::method(name, args.len()).map(|function| Step::Call(function, args));
        };
        let body = args.pop();
        let condition = if which == Macro::Map && args.len() == 2 { args.pop() } else { None };
        match (args.as_slice(), body) {
            ([Expr::Name(name)], Some(body)) => {
                Ok(Step::Macro { which, name: name.clone(), condition, body: Box::new(body) })
            }
            ([_], Some(_)) => Err(format!("the first argument of {name}() must be a simple name")),
            _ => Err(format!("{name}() with this number of arguments is not supported")),
        }
    }

    /// Expressions up to a sign, which is taken too. A comma may end them.
    fn list(&mut self, end: &str) -> Parsed<Vec<Expr>> {
        let mut list = Vec::new();
        while !self.takes(end) {
            list.push(self.expr()?);
            if !self.takes(",") {
                self.must(end)?;
                break;
            }
        }
        Ok(list)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        if self.takes("(") {
            let expr = self.expr()?;
            self.must(")")?;
            return Ok(expr);
        }
        if self.takes("[") {
            return Ok(Expr::List(self.list("]")?));
        }
        if self.takes("{") {
            return self.map();
        }
        if let Some(Token::Literal(literal)) = self.peek() {
            let literal = literal.clone();
            self.at += 1;
            return Ok(Expr::Literal(literal));
        }
        self.takes(".");
        let name = self.name()?;
        if RESERVED.contains(&name.as_str()) {
            return Err(format!("syntax error: reserved identifier: {name}"));
        }
        if !self.takes("(") {
            return Ok(Expr::Name(name));
        }
        let args = self.list(")")?;
        if name == "has" {
            return has(args);
        }
        Function::global(&name, args.len()).map(|function| Expr::Call(function, args))
    }

    fn map(&mut self) -> Parsed<Expr> {
        let mut entries = Vec::new();
        while !self.takes("}") {
            let key = self.expr()?;
            self.must(":")?;
            entries.push((key, self.expr()?));
            if !self.takes(",") {
                self.must("}")?;
                break;
            }
        }
        Ok(Expr::Map(entries))
    }
}

fn one_or(mut terms: Vec<Expr>, many: fn(Vec<Expr>) -> Expr) -> Expr {
    match terms.len() {
        1 => terms.swap_remove(0),
        _ => many(terms),
    }
}

fn has(mut args: Vec<Expr>) -> Parsed<Expr> {
    let invalid = || Err("invalid argument to has() macro".to_owned());
    if args.len() != 1 {
        return invalid();
    }
    let Some(Expr::Steps(of, mut steps)) = args.pop() else { return invalid() };
    let Some(Step::Field(name)) = steps.pop() else { return invalid() };
    let of = if steps.is_empty() { of } else { Box::new(Expr::Steps(of, steps)) };
    Ok(Expr::Has(of, name))
}
