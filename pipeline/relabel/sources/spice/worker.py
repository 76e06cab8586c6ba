"""SPICE's parser as a program: captions in, one JSON text a line; their scene-graph tuples out, one JSON line each.

Java runs inside this process, through JPype, and this process is the border: CoreNLP (GPL-3.0) and SPICE (AGPL-3.0),
which their users fetch themselves, are loaded here alone, and nothing but lines goes to and fro. Run as a file, it
imports nothing of relabel.

The pipeline is SPICE's own (tokenize, ssplit, parse, lemma) without its `ner`, which changes no tuple. It is walked
sentence by sentence, so that a sentence that the heap is too small for is noticed: CoreNLP itself would go on with a
parse that depends on the heap.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

PROPERTIES = {"annotators": "tokenize,ssplit", "depparse.extradependencies": "MAXIMAL", "threads": "1"}
"""As SPICE's Annotator sets them, but for the annotators, which follow one by one."""


class Parser:
    """SPICE's parser in a Java of its own.

    Parameters
    ----------
    jvm : str
        The Java library (libjvm).
    options : list of str
        Of the virtual machine.
    jars : list of str
    """

    def __init__(self, jvm: str, options: list[str], jars: list[str]) -> None:
        import jpype

        self.jpype = jpype
        jpype.startJVM(jvm, *options, classpath=jars, convertStrings=False)
        kind = jpype.JClass
        properties = kind("java.util.Properties")()
        for name, value in PROPERTIES.items():
            properties.setProperty(name, value)
        core = "edu.stanford.nlp"
        self.split = kind(f"{core}.pipeline.StanfordCoreNLP")(properties)
        self.trees = kind(f"{core}.pipeline.ParserAnnotator")("parse", properties)
        self.lemmas = kind(f"{core}.pipeline.MorphaAnnotator")(False)
        self.annotation = kind(f"{core}.pipeline.Annotation")
        annotations = f"{core}.ling.CoreAnnotations"
        self.sentences = kind(f"{annotations}$SentencesAnnotation").class_
        self.tokens = kind(f"{annotations}$TokensAnnotation").class_
        self.no_such_parse = kind(f"{core}.parser.common.NoSuchParseException")
        self.memory = kind("java.lang.OutOfMemoryError")
        self.wrapped = kind("java.lang.reflect.InvocationTargetException")
        self.any = kind("java.lang.Throwable")
        self.list = kind("java.util.LinkedList")
        self.spice = kind("edu.anu.spice.SpiceParser")(None, 1, True)
        self.grammar = _field(self.trees, "parser")
        lists, sentence = kind("java.util.List").class_, kind(f"{core}.util.CoreMap").class_
        self.finish = _method(self.trees, "finishSentence", sentence, lists)
        self.read = _method(self.spice, "parseAnnotation", self.annotation.class_)

    def answer(self, text: str) -> Any:
        """Parse a caption: a list of tuples; `{"failed": reason}`; or `{"memory": reason}`, after which no more."""
        try:
            return self.tuples(text)
        except MemoryError as error:
            return {"memory": _said(error)}
        except self.any as error:
            while isinstance(error, self.wrapped) and error.getCause() is not None:
                error = error.getCause()
            return {"memory" if isinstance(error, self.memory) else "failed": f"Java says {_said(error)}"}

    def tuples(self, text: str) -> list[list[str]]:
        """Parse a caption, as SpiceParser.generateTuples does."""
        whole = text.encode("utf-8", "replace").decode()  # half a surrogate pair is no Java string to JPype
        annotation = self.annotation(self.jpype.JString(whole))
        self.split.annotate(annotation)
        for sentence in annotation.get(self.sentences):
            self.parse(annotation, sentence)
        self.lemmas.annotate(annotation)
        found = _field(self.read.invoke(self.spice, annotation), "tuples")
        return [[str(word) for word in each] for each in found]

    def parse(self, annotation: Any, sentence: Any) -> None:
        """Parse one sentence, as ParserAnnotator.doOneSentence does."""
        query = self.grammar.parserQuery()
        query.parse(sentence.get(self.tokens))
        if query.parseNoMemory():
            raise MemoryError(f"a sentence of {sentence.get(self.tokens).size()} tokens does not fit into the heap")
        trees = self.list()
        try:
            for scored in query.getKBestPCFGParses(1):
                tree = scored.object()
                tree.setScore(scored.score())
                trees.add(tree)
        except self.no_such_parse:
            trees.clear()
        if trees.isEmpty():
            self.trees.doOneFailedSentence(annotation, sentence)
        else:
            self.finish.invoke(self.trees, sentence, trees)


def main() -> int:
    """Answer captions until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii", newline="\n")
    os.dup2(2, 1)  # whatever a library prints must not pass for an answer

    def say(answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        parser = Parser(**json.loads(sys.argv[1]))
    except Exception as error:
        say({"dead": _said(error)})
        return 1
    say({"ready": True})
    for line in sys.stdin:
        answer = parser.answer(json.loads(line))
        say(answer)
        if isinstance(answer, dict) and "memory" in answer:
            break
    os._exit(0)  # a virtual machine that is short of memory may take long to shut down


def _method(owner: Any, name: str, *parameters: Any) -> Any:
    """Find a method that Java's own code keeps to itself."""
    kind = owner.getClass()
    method = kind.getDeclaredMethod(name, *parameters)
    method.setAccessible(True)
    return method


def _field(owner: Any, name: str) -> Any:
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)


def _said(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


if __name__ == "__main__":
    sys.exit(main())
